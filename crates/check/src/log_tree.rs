//! The trees of a log that was not replayed yet: their blocks are sound, no other tree has their space, and their
//! data has checksums.
//!
//! No extent tells of them, and names and inodes in them count from the replay on: these are not judged.
//!
//! An extent that was written after the last commit has its checksums in the log of its subvolume. What it
//! shares with older ones may have them in the committed tree.

use ubtrfs_format::ids::{Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{FileExtent, InodeFlags, InodeItem, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;
use zerocopy::FromBytes;

use crate::csums::{RangeSorter, Union};
use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::roots::Roots;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
) -> Result<(), CheckError> {
    let superblock = volume.superblock();
    let extents = roots.tree_root(RootId::EXTENT_TREE);
    if superblock.log_root.get() == 0 || !volume.is_current() {
        return Ok(());
    }
    let csums = roots.tree_root(RootId::CSUM_TREE);
    let csum_bytes = superblock.csum_type().size_bytes() as u64;
    let sectorsize = u64::from(volume.sectorsize());
    let mut reader = Reader {
        state,
        extents: extents.map(|root| volume.view(&root)),
        csums: csums.map(|root| Csums {
            view: volume.view(&root),
            csum_bytes,
            sectorsize,
        }),
        committed: superblock.generation.get(),
        csum_bytes,
        sectorsize,
        log: Log::Nothing,
        is_unsummed: false,
        logs: Vec::new(),
    };
    let log_root = TreeRoot {
        tree: RootId::TREE_LOG,
        bytenr: Logical(superblock.log_root.get()),
        level: superblock.log_root_level,
        generation: Some(Transid(superblock.generation.get().saturating_add(1))),
        dropped: None,
    };
    walk(volume, &[log_root], &mut reader)?;
    let logs = std::mem::take(&mut reader.logs);
    walk(volume, &logs, &mut reader)
}

struct Reader<'s, 'a> {
    state: &'s mut State<'a>,
    extents: Option<View>,
    csums: Option<Csums>,
    /// Generation of the last commit.
    committed: u64,
    csum_bytes: u64,
    sectorsize: u64,
    log: Log,
    /// The inode being met has no checksums.
    is_unsummed: bool,
    /// What the tree of log roots names.
    logs: Vec<TreeRoot>,
}

/// Data of the log being met that needs checksums. They stand behind all inodes.
enum Log {
    /// Part of the log is lost, and nothing can be said.
    Nothing,
    Needing(RangeSorter),
    Comparing(Union),
}

impl Visitor for Reader<'_, '_> {
    fn begin(&mut self, _: &TreeRoot) -> Result<(), CheckError> {
        self.log = Log::Needing(RangeSorter::new(self.state.sorter()));
        self.is_unsummed = false;
        Ok(())
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        let bytenr = block.node.bytenr().0;
        if self.is_allocated(bytenr) {
            let at = Place::tree(root.tree).at(bytenr);
            self.state.add(at, Fault::LogBlockAllocated {});
        }
        for (key, bytes) in block.node.items() {
            match key.item_type {
                KeyType::ROOT_ITEM if key.objectid == RootId::TREE_LOG.0 => self.log_root(bytes),
                KeyType::INODE_ITEM => {
                    let item = InodeItem::ref_from_bytes(bytes).ok();
                    self.is_unsummed =
                        item.is_some_and(|item| item.flags().contains(InodeFlags::NODATASUM));
                }
                KeyType::EXTENT_DATA => self.data(bytes)?,
                KeyType::EXTENT_CSUM if key.objectid == objectid::EXTENT_CSUM => {
                    let sectors = bytes.len() as u64 / self.csum_bytes;
                    let length = sectors.saturating_mul(self.sectorsize);
                    self.sums(key.offset, key.offset.saturating_add(length))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What the log says is lost with it; the trees that the next mount begins with are whole.
    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        self.log = Log::Nothing;
        self.state
            .add(Place::tree(lost.tree).at(lost.bytenr.0), lost.fault);
        Ok(())
    }

    fn end(&mut self, _: &TreeRoot) -> Result<(), CheckError> {
        self.sums(u64::MAX, u64::MAX)
    }
}

impl Reader<'_, '_> {
    fn log_root(&mut self, bytes: &[u8]) {
        if let Some(item) = RootItem::decode(bytes) {
            self.logs.push(TreeRoot {
                tree: RootId::TREE_LOG,
                bytenr: item.bytenr(),
                level: item.level,
                generation: Some(item.transid()),
                dropped: None,
            });
        }
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), CheckError> {
        let Some(FileExtent::Regular {
            head,
            body,
            prealloc: false,
        }) = FileExtent::decode(bytes)
        else {
            return Ok(());
        };
        let is_compressed = head.compression != 0;
        let is_unsummed = self.is_unsummed && !is_compressed;
        let (Some(disk), Log::Needing(needed)) = (body.disk(), &mut self.log) else {
            return Ok(());
        };
        if is_unsummed || head.generation.get() <= self.committed {
            return Ok(());
        }
        let (start, length) = match is_compressed {
            true => (disk.0, body.disk_num_bytes.get()),
            false => {
                let start = disk.0.saturating_add(body.offset.get());
                (start, body.num_bytes.get())
            }
        };
        needed.add((start, start.saturating_add(length)))
    }

    /// Checksums in the log, in ascending order.
    fn sums(&mut self, start: u64, end: u64) -> Result<(), CheckError> {
        if let Log::Needing(_) = self.log
            && let Log::Needing(needed) = std::mem::replace(&mut self.log, Log::Nothing)
        {
            self.log = Log::Comparing(needed.finish()?);
        }
        let Log::Comparing(needed) = &mut self.log else {
            return Ok(());
        };
        let (state, csums) = (&mut *self.state, &self.csums);
        needed.take_before(start, &mut |start, end| {
            if let Some(length) = csums.as_ref().and_then(|csums| csums.lack(start, end)) {
                let at = Place::tree(RootId::TREE_LOG).at(start);
                state.add(at, Fault::LogCsumMissing { length });
            }
        })?;
        needed.take_before(end, &mut |_, _| {})
    }

    /// Whether an extent begins there. A block that cannot be read is told elsewhere.
    fn is_allocated(&self, bytenr: u64) -> bool {
        let Some(view) = &self.extents else {
            return false;
        };
        let mut cursor = view.cursor();
        let from = Key::new(bytenr, KeyType::EXTENT_ITEM, 0);
        cursor.seek(&from).unwrap_or(false)
            && cursor.current().is_some_and(|(key, _)| {
                let is_extent =
                    matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM);
                key.objectid == bytenr && is_extent
            })
    }
}

/// The committed checksums.
struct Csums {
    view: View,
    csum_bytes: u64,
    sectorsize: u64,
}

impl Csums {
    /// How much of a range has no checksums in the committed tree, if any. A block that cannot be read is told
    /// elsewhere.
    fn lack(&self, start: u64, end: u64) -> Option<u64> {
        let mut cursor = self.view.cursor();
        let from = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, start);
        let mut found = match cursor.seek_floor(&from) {
            Ok(true) => true,
            Ok(false) => cursor.seek(&from).ok()?,
            Err(_) => return None,
        };
        let (mut at, mut length) = (start, 0);
        while found && at < end {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if key.offset >= end || key.item_type != KeyType::EXTENT_CSUM {
                break;
            }
            let sectors = bytes.len() as u64 / self.csum_bytes;
            let item_end = key.offset.saturating_add(sectors * self.sectorsize);
            length += key.offset.saturating_sub(at);
            at = at.max(item_end);
            found = cursor.advance().ok()?;
        }
        length += end.saturating_sub(at);
        (length > 0).then_some(length)
    }
}

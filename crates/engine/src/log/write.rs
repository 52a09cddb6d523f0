//! Writing the log: what was changed of an inode goes from the mutable set straight into the log of its subvolume.
//!
//! A regular file whose names have not changed is logged, and so is a new one in a directory that the last commit knows. All
//! else is committed.
//!
//! Invariants
//! - LOG-WRITE-1: file extents in a log do not overlap, and cover all of the file that was changed.
//!
//! Locks: `LogSession`, then the inode's, so that a log has what the mutable set says of the inode at one moment.
//! Not here: blocks of the log (`ubtrfs_transaction`), replay.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{FileKind, InodeFlags, InodeItem, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_transaction::csum_tree::{CsumShape, data_csums};
use ubtrfs_transaction::{LogOutcome, LogSession};

use crate::error::Result;
use crate::file::{Durable, Extent, Files};
use crate::inode::{Inode, Inodes, WritebackErrors, decode_inode, inode_key, kind_of};
use crate::namespace::find_entry;

/// The fsync log of a volume.
#[derive(Debug)]
pub(crate) struct TreeLog {
    inodes: Arc<Inodes>,
    files: Arc<Files>,
    /// Whether anything is logged.
    is_on: bool,
}

/// Why a commit takes the place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlogged {
    /// The inode is no regular file.
    Kind,
    /// It has lost or got names, or its directory is new.
    Names,
    /// Chunks are new, which a log must not lie in, nor its data.
    NewChunk,
    /// There is an item that no replay knows, or that lacks its checksums.
    Item,
}

/// Items of one inode for the log.
type Items = Vec<(Key, Arc<[u8]>)>;

impl TreeLog {
    pub(crate) fn new(files: &Arc<Files>, is_on: bool) -> TreeLog {
        TreeLog {
            inodes: Arc::clone(&files.inodes),
            files: Arc::clone(files),
            is_on,
        }
    }

    /// Makes `what` of an inode durable; `report` takes a write-back error that is to be returned.
    pub(crate) fn sync(
        &self,
        inode: &Arc<Inode>,
        what: Durable,
        report: impl FnOnce(&mut WritebackErrors) -> Option<String>,
    ) -> Result<()> {
        nonblocking::check()?;
        self.files.write_back_for_sync(inode, what, report)?;
        let manager = self.inodes.transactions()?;
        if !self.is_on {
            return match what {
                Durable::All => manager.commit_running(),
                Durable::Data => self.commit_data_of(inode),
            };
        }
        if what == Durable::Data
            && let Ok(changed) = inode.tree.inode_items.changed_in(inode.id)
            && manager.committed() >= changed
        {
            return manager.commit_through(changed);
        }
        let mut session = manager.log_session()?;
        let written = match self.log_inode(&mut session, inode) {
            Ok(None) => session.write(),
            Ok(Some(reason)) => {
                tracing::debug!(inode = %inode.id.ino, ?reason, "a commit in place of a log");
                return session.commit_instead();
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(LogOutcome::Written) => Ok(()),
            Ok(LogOutcome::NoRoom) => session.commit_instead(),
            Err(error) => {
                tracing::warn!(%error, "the log could not be written: a commit takes its place");
                session.commit_instead()
            }
        }
    }

    /// Commits what was changed of an inode, times apart. What was written in place is durable then as well.
    fn commit_data_of(&self, inode: &Inode) -> Result<()> {
        let manager = self.inodes.transactions()?;
        let items = &inode.tree.inode_items;
        match items.changed_in(inode.id) {
            Ok(changed) => manager.commit_through(changed),
            Err(ticket) => {
                let running = manager.running_transid();
                manager.commit_through(running)?;
                items.note_changed_by(ticket, inode.id, running);
                Ok(())
            }
        }
    }

    /// Puts what was changed of an inode into the log. Returns why it cannot be there.
    fn log_inode(
        &self,
        session: &mut LogSession<'_>,
        inode: &Arc<Inode>,
    ) -> Result<Option<Unlogged>> {
        let manager = self.inodes.transactions()?;
        let _state = inode.lock.read();
        let ino = inode.id.ino;
        let all = Key::new(ino.0, KeyType(0), 0)..=Key::new(ino.0, KeyType(u8::MAX), u64::MAX);
        let changed = inode.tree.edited_in(all);
        if changed.is_empty() {
            return Ok(None);
        }
        if manager.space.has_new_groups(manager.committed()) {
            return Ok(Some(Unlogged::NewChunk));
        }
        let Some(bytes) = inode.tree.view.get(&inode_key(ino))? else {
            return Ok(Some(Unlogged::Names));
        };
        let item = decode_inode(inode.id, &bytes)?;
        if kind_of(inode.id, &item)? != FileKind::Regular {
            return Ok(Some(Unlogged::Kind));
        }
        if item.nlink.get() == 0 {
            return Ok(Some(Unlogged::Names));
        }
        let mut items: Items = vec![(inode_key(ino), (*bytes).into())];
        for (key, value) in &changed {
            match (key.item_type, value) {
                (KeyType::INODE_ITEM | KeyType::XATTR_ITEM | KeyType::EXTENT_DATA, _) => {}
                (KeyType::INODE_REF, Some(value)) if self.is_first_name(inode, *key, value)? => {
                    items.push((*key, Arc::clone(value)));
                }
                (KeyType::INODE_REF | KeyType::INODE_EXTREF, _) => {
                    return Ok(Some(Unlogged::Names));
                }
                _ => return Ok(Some(Unlogged::Item)),
            }
        }
        self.add_xattrs(inode, &mut items)?;
        let extents = self.add_extents(inode, &item, &changed, &mut items)?;
        if !self.add_csums(&item, session, inode.id.root, &extents)? {
            return Ok(Some(Unlogged::Item));
        }
        replace_items(session, inode, items);
        Ok(None)
    }

    /// Whether a back reference is the only name of an inode that is new since the last commit. Its directory must not be
    /// new, and no other inode may have had the name.
    fn is_first_name(&self, inode: &Inode, key: Key, value: &[u8]) -> Result<bool> {
        let committed = inode.tree.committed_view();
        let mut names = InodeRefs::new(value);
        let (Some(name), None) = (names.next(), names.next()) else {
            return Ok(false);
        };
        Ok(committed.get(&inode_key(inode.id.ino))?.is_none()
            && committed.get(&inode_key(InodeNr(key.offset)))?.is_some()
            && find_entry(&committed, key.offset, name.name)?.is_none())
    }

    /// All attributes: those that a log lacks are deleted by its replay.
    fn add_xattrs(&self, inode: &Inode, items: &mut Items) -> Result<()> {
        let first = Key::new(inode.id.ino.0, KeyType::XATTR_ITEM, 0);
        let mut cursor = inode.tree.view.cursor();
        let mut more = cursor.seek(&first)?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        {
            items.push((key, bytes.into()));
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// The file extents that were changed, holes where extents are gone, and what is reserved beyond the end. Returns the
    /// extents.
    fn add_extents(
        &self,
        inode: &Inode,
        item: &InodeItem,
        changed: &[(Key, Option<Arc<[u8]>>)],
        items: &mut Items,
    ) -> Result<Vec<Extent>> {
        let sectorsize = self.inodes.roots.sectorsize();
        let end = item.size.get().next_multiple_of(sectorsize);
        let committed = inode.tree.committed_view();
        let mut extents = Vec::new();
        let decode = |key: Key, bytes: &[u8]| {
            Extent::decode(bytes).map_err(|what| crate::error::Error::Corrupt {
                tree: inode.id.root,
                key,
                what,
            })
        };
        let mut gone: Vec<Range<u64>> = Vec::new();
        for (key, value) in changed {
            if key.item_type != KeyType::EXTENT_DATA {
                continue;
            }
            if let Some(value) = value {
                extents.push(decode(*key, value)?);
                items.push((*key, Arc::clone(value)));
            }
            if let Some(old) = committed.get(key)? {
                let len = decode(*key, &old)?.len(sectorsize);
                gone.push(key.offset..key.offset.saturating_add(len).min(end));
            }
        }
        // LOG-WRITE-1
        for range in gone {
            self.add_holes(inode, range, items)?;
        }
        // A replay cuts the file at its end first.
        let mut cursor = inode.tree.view.cursor();
        let mut more = cursor.seek(&Key::new(inode.id.ino.0, KeyType::EXTENT_DATA, end))?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && (key.objectid, key.item_type) == (inode.id.ino.0, KeyType::EXTENT_DATA)
        {
            if !items.iter().any(|(known, _)| *known == key) {
                extents.push(decode(key, bytes)?);
                items.push((key, bytes.into()));
            }
            more = cursor.advance()?;
        }
        Ok(extents)
    }

    /// Holes for the parts of a range that no extent has.
    fn add_holes(&self, inode: &Inode, range: Range<u64>, items: &mut Items) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let sectorsize = self.inodes.roots.sectorsize();
        let edit = crate::file::ExtentEdit::load(inode, sectorsize, range.clone())?;
        for gap in edit.gaps(range) {
            let key = Key::new(inode.id.ino.0, KeyType::EXTENT_DATA, gap.start);
            let hole = Extent::Hole {
                generation: 0,
                len: gap.end - gap.start,
            };
            items.push((key, hole.encode().into()));
        }
        Ok(())
    }

    /// The checksums of extents that the last commit does not know. False if one is missing.
    fn add_csums(
        &self,
        item: &InodeItem,
        session: &mut LogSession<'_>,
        root: RootId,
        extents: &[Extent],
    ) -> Result<bool> {
        if item.flags().contains(InodeFlags::NODATASUM) {
            return Ok(true);
        }
        let roots = &*self.inodes.roots;
        let shape = CsumShape::of(&roots.superblock());
        for extent in extents {
            let Extent::Disk(part) = extent else { continue };
            if part.prealloc || part.generation != session.transid().0 {
                continue;
            }
            // Of the whole extent, so that parts of it never overlap in the log.
            let sectors = part.disk.len / roots.sectorsize();
            let sums = data_csums(roots, part.disk.start, sectors as usize)?;
            if sums.first_missing().is_some() {
                return Ok(false);
            }
            for (key, sums) in shape.items(part.disk.start, sums.bytes()) {
                session.put(root, key, sums.into());
            }
        }
        Ok(true)
    }
}

/// Has the log hold these items of an inode, and of its file extents and attributes no others.
fn replace_items(session: &mut LogSession<'_>, inode: &Inode, items: Items) {
    let (root, ino) = (inode.id.root, inode.id.ino.0);
    let range =
        Key::new(ino, KeyType::XATTR_ITEM, 0)..=Key::new(ino, KeyType::EXTENT_DATA, u64::MAX);
    for key in session.keys_in(root, range) {
        if !items.iter().any(|(known, _)| *known == key) {
            session.delete(root, key);
        }
    }
    for (key, item) in items {
        session.put(root, key, item);
    }
}

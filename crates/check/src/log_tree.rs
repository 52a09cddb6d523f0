//! Checks of a log that was not replayed yet, from the viewpoint of the replay.
//!
//! Blocks of a log are checked like blocks of other trees, and their space must not belong to another tree. The items
//! of an inode must be consistent with the last commit, and the names in the log with each other. Logged data must
//! have checksums.
//!
//! A log is walked in key order, one inode at a time. Related data is looked up in the trees of the last commit.
//!
//! Not here: the effects of a replay.

mod csums;
mod inodes;
mod lookup;
mod names;
mod space;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::{FileExtent, RootItem};
use ubtrfs_format::key::{Key, KeyType};

use crate::csums::Expectations;
use crate::error::CheckError;
use crate::fault::Fault;
use crate::files::Rules;
use crate::issue::Place;
use crate::roots::Roots;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

use csums::{LogCsums, NeededCsums};
use inodes::LoggedInode;
use lookup::Lookup;
use names::LoggedNames;
use space::LogSpace;

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
    expectations: &mut Expectations,
) -> Result<(), CheckError> {
    let superblock = volume.superblock();
    if !superblock.has_log() || !volume.is_current() {
        return Ok(());
    }
    let view = |tree| roots.tree_root(tree).map(|root| volume.view(&root));
    let log_root = TreeRoot {
        tree: RootId::TREE_LOG,
        bytenr: Logical(superblock.log_root.get()),
        level: superblock.log_root_level,
        generation: Some(Transid(superblock.generation.get().saturating_add(1))),
        dropped: None,
    };
    let mut reader = LogReader {
        rules: Rules::of(volume),
        space: LogSpace::new(state, volume, view(RootId::EXTENT_TREE)),
        csums: LogCsums::new(state, volume, view(RootId::CSUM_TREE)),
        expectations,
        logs: Vec::new(),
        log: None,
        state,
    };
    walk(volume, &[log_root], &mut reader)?;
    for (subvolume, root) in std::mem::take(&mut reader.logs) {
        let committed = roots.find(subvolume).filter(|entry| !entry.is_deleted());
        let exists = committed.is_some() && subvolume.is_subvolume();
        if !exists {
            let lost = reader.state.has_lost(RootId::ROOT_TREE);
            let at = Place::tree(RootId::TREE_LOG).at(root.bytenr.0);
            let subvolume = subvolume.0;
            reader
                .state
                .add_unless(lost, at, Fault::LogOfNothing { subvolume });
        }
        reader.log = Some(OneLog {
            lookup: Lookup {
                log: volume.view(&root),
                committed: committed.map(|entry| volume.view(&entry.tree_root())),
            },
            exists,
            csums: NeededCsums::new(reader.state),
            names: LoggedNames::new(reader.state),
            inode: None,
            is_lost: false,
        });
        walk(volume, &[root], &mut reader)?;
        reader.finish_log()?;
    }
    reader.space.finish(reader.state)
}

struct LogReader<'s, 'a> {
    state: &'s mut State<'a>,
    rules: Rules,
    space: LogSpace<'s>,
    csums: LogCsums<'s>,
    expectations: &'s mut Expectations,
    /// The logs in the log root tree.
    logs: Vec<(RootId, TreeRoot)>,
    /// The current log; None in the log root tree.
    log: Option<OneLog>,
}

/// The log of one subvolume.
struct OneLog {
    lookup: Lookup,
    /// Whether the subvolume exists. Otherwise a replay skips the log.
    exists: bool,
    csums: NeededCsums,
    names: LoggedNames,
    inode: Option<LoggedInode>,
    /// Whether a part of the log is unreadable, so that items may be missing.
    is_lost: bool,
}

impl Visitor for LogReader<'_, '_> {
    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        self.check_block(root, block)?;
        self.state.check_types(root, block);
        let mut log = self.log.take();
        for (key, bytes) in block.node.items() {
            match &mut log {
                None => self.log_root(key, bytes),
                Some(log) => self.item(log, (key, bytes))?,
            }
        }
        self.log = log;
        Ok(())
    }

    /// Handles a lost block of the log. The trees of the last commit are not affected.
    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        if let Some(log) = &mut self.log {
            log.is_lost = true;
            log.csums.lose();
        }
        let bytenr = lost.bytenr.0;
        if self.state.lost_blocks.insert_without_refs(bytenr) {
            let at = Place::tree(lost.tree).at(bytenr);
            self.state.add(at, lost.fault);
        }
        Ok(())
    }
}

impl LogReader<'_, '_> {
    fn check_block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        let node = block.node;
        let bytenr = node.bytenr().0;
        let at = Place::tree(root.tree).at(bytenr);
        if node.owner() != RootId::TREE_LOG {
            let owner = node.owner().0;
            self.state.add(at, Fault::LogBlockOwner { owner });
        }
        let (generation, wanted) = (node.generation().0, self.rules.generation);
        if generation != wanted {
            let fault = Fault::LogBlockGeneration { generation, wanted };
            self.state.add(at, fault);
        }
        self.space.add_block(self.state, bytenr)
    }

    fn log_root(&mut self, key: Key, bytes: &[u8]) {
        if (key.objectid, key.item_type) != (RootId::TREE_LOG.0, KeyType::ROOT_ITEM) {
            return;
        }
        if let Some(item) = RootItem::decode(bytes) {
            let root = TreeRoot {
                tree: RootId::TREE_LOG,
                bytenr: item.bytenr(),
                level: item.level,
                generation: Some(item.transid()),
                dropped: None,
            };
            self.logs.push((RootId(key.offset), root));
        }
    }

    fn item(&mut self, log: &mut OneLog, item: (Key, &[u8])) -> Result<(), CheckError> {
        match item.0.item_type {
            KeyType::EXTENT_CSUM => self.csums.item(self.state, &mut log.csums, item),
            _ if log.exists => self.inode_item(log, item),
            _ => Ok(()),
        }
    }

    /// Checks the data of an extent.
    fn data(
        &mut self,
        log: &mut OneLog,
        inode: &LoggedInode,
        (key, bytes): (Key, &[u8]),
    ) -> Result<(), CheckError> {
        let Some(FileExtent::Regular {
            head,
            body,
            prealloc,
        }) = FileExtent::decode(bytes)
        else {
            return Ok(());
        };
        let Some(disk) = body.disk() else {
            return Ok(());
        };
        let whole = (disk.0, body.disk_num_bytes.get());
        self.expectations.add_logged(whole)?;
        let at = Place::item(RootId::TREE_LOG, key);
        self.space.add_data(self.state, at, whole)?;
        if prealloc {
            return Ok(());
        }
        let is_unsummed = inode.is_unsummed();
        self.csums
            .add_data(&mut log.csums, (head, body), is_unsummed)
    }

    fn finish_log(&mut self) -> Result<(), CheckError> {
        let Some(mut log) = self.log.take() else {
            return Ok(());
        };
        self.finish_inode(&mut log)?;
        self.csums.finish(self.state, &mut log.csums)?;
        log.names.finish(self.state, log.is_lost)
    }
}

//! The items of one inode in a log, checked by themselves and against the last commit.
//!
//! A log contains only a part of an inode, so that missing items are not a fault. Its size, `nbytes` and link count
//! are not checked either, because a replay recomputes them.

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{
    DirEntries, DirEntry, DirLogItem, FileExtent, FileKind, InodeFlags, InodeItem,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::replay_outgrows_leaf;
use ubtrfs_tree::TreeError;
use zerocopy::FromBytes;

use super::lookup::{InodeName, Lookup, inode_key, names_of};
use super::names::NameKind;
use super::{LogReader, OneLog};
use crate::error::CheckError;
use crate::fault::Fault;
use crate::files::Inode;
use crate::issue::Place;

/// Maximum depth of the walk from a directory to the root directory.
const MAX_DEPTH: usize = 1 << 16;

/// An inode while its items are read.
pub(super) struct LoggedInode {
    pub(super) number: u64,
    item: Option<InodeItem>,
    committed: Option<InodeItem>,
    /// The state of its extents.
    extents: Inode,
    /// Whether the log has back references of the inode.
    has_refs: bool,
    /// Whether the log has items that require the inode to exist.
    is_used: bool,
    /// The names in the log, if it is a directory.
    dir_names: Vec<InodeName>,
}

impl LoggedInode {
    pub(super) fn new(number: u64, lookup: &Lookup) -> LoggedInode {
        LoggedInode {
            number,
            item: None,
            // A read error is reported elsewhere.
            committed: lookup.committed_inode(number).unwrap_or(None),
            extents: Inode::new(number),
            has_refs: false,
            is_used: false,
            dir_names: Vec::new(),
        }
    }

    /// Returns whether the replay skips the inode. It skips all items of an inode with a link count of 0.
    fn is_skipped(&self) -> bool {
        self.item.is_some_and(|item| item.nlink.get() == 0)
    }

    fn either(&self) -> Option<&InodeItem> {
        self.item.as_ref().or(self.committed.as_ref())
    }

    fn mode(&self) -> Option<u32> {
        self.either().map(|item| item.mode.get())
    }

    fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode()?)
    }

    pub(super) fn is_unsummed(&self) -> bool {
        let flags = self.either().map(InodeItem::flags);
        flags.is_some_and(|flags| flags.contains(InodeFlags::NODATASUM))
    }

    /// Returns a fault if the inode is known and not a directory.
    fn check_dir(&self) -> Option<Fault> {
        let mode = self.mode()?;
        (self.kind() != Some(FileKind::Directory)).then_some(Fault::EntriesOfOther { mode })
    }
}

impl LogReader<'_, '_> {
    /// Checks an item of an inode. Checksum items are not handled here.
    pub(super) fn inode_item(
        &mut self,
        log: &mut OneLog,
        (key, bytes): (Key, &[u8]),
    ) -> Result<(), CheckError> {
        let is_same = |inode: &LoggedInode| inode.number == key.objectid;
        let mut inode = match log.inode.take() {
            Some(inode) if is_same(&inode) => inode,
            before => {
                log.inode = before;
                self.finish_inode(log)?;
                LoggedInode::new(key.objectid, &log.lookup)
            }
        };
        if !inode.is_skipped() {
            self.item_of(log, &mut inode, (key, bytes))?;
        } else if key.item_type == KeyType::EXTENT_DATA {
            self.data(log, &inode, (key, bytes))?;
        }
        log.inode = Some(inode);
        Ok(())
    }

    fn item_of(
        &mut self,
        log: &mut OneLog,
        inode: &mut LoggedInode,
        (key, bytes): (Key, &[u8]),
    ) -> Result<(), CheckError> {
        self.growth(log, (key, bytes));
        match key.item_type {
            KeyType::INODE_ITEM => {
                self.inode_itself(log, inode, (key, bytes));
                return Ok(());
            }
            KeyType::INODE_REF | KeyType::INODE_EXTREF => {
                inode.has_refs = true;
                for name in names_of(key, bytes) {
                    self.reference(log, inode, key, name)?;
                }
            }
            KeyType::DIR_LOG_INDEX => self.range(log, inode, (key, bytes)),
            KeyType::DIR_INDEX => {
                if let Some(fault) = inode.check_dir() {
                    self.add(log, key, fault);
                }
                for entry in DirEntries::new(bytes) {
                    self.entry(log, (key, bytes), &entry)?;
                }
            }
            KeyType::EXTENT_DATA => {
                self.extent(log, inode, (key, bytes));
                self.data(log, inode, (key, bytes))?;
            }
            KeyType::XATTR_ITEM => {}
            _ => return Ok(()),
        }
        inode.is_used = true;
        Ok(())
    }

    /// Checks whether the replay would grow an item beyond its leaf.
    fn growth(&mut self, log: &OneLog, (key, bytes): (Key, &[u8])) {
        let (new_len, nodesize) = (bytes.len(), self.rules.nodesize);
        let outgrows = |old_len| replay_outgrows_leaf(key.item_type, old_len, new_len, nodesize);
        if !outgrows(new_len.saturating_sub(1)) {
            return;
        }
        if let Ok(Some(committed)) = log.lookup.committed(&key)
            && outgrows(committed.len())
        {
            let (committed, logged) = (committed.len() as u64, new_len as u64);
            self.add(log, key, Fault::LogItemOutgrowsLeaf { committed, logged });
        }
    }

    fn inode_itself(&mut self, log: &OneLog, inode: &mut LoggedInode, (key, bytes): (Key, &[u8])) {
        let Ok(item) = InodeItem::read_from_bytes(bytes) else {
            return;
        };
        inode.item = Some(item);
        let mode = item.mode.get();
        let committed = inode.committed.map_or(mode, |item| item.mode.get());
        let kinds = [mode, committed].map(FileKind::from_mode);
        if kinds[0] != kinds[1] && !inode.is_skipped() {
            self.add(log, key, Fault::LogInodeKind { mode, committed });
        }
        let flags = item.flags() & (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if kinds[0] == Some(FileKind::Symlink) && !flags.is_empty() {
            let flags = flags.bits();
            self.add(log, key, Fault::SymlinkFlags { flags });
        }
    }

    /// Checks a name in a back reference.
    fn reference(
        &mut self,
        log: &mut OneLog,
        inode: &mut LoggedInode,
        key: Key,
        name: InodeName,
    ) -> Result<(), CheckError> {
        let dir = name.dir;
        match log.lookup.inode(dir) {
            Ok(None) => self.add(log, key, Fault::LogParentMissing { parent: dir }),
            Ok(Some(parent)) => {
                let mode = parent.mode.get();
                if FileKind::from_mode(mode) != Some(FileKind::Directory) {
                    self.add(log, key, Fault::EntriesOfOther { mode });
                }
            }
            Err(_) => {}
        }
        let facts = (inode.number, name.index);
        log.names.add(NameKind::Ref, (dir, &name.name), facts)?;
        self.index(log, dir, name.index, &name.name)?;
        if inode.kind() == Some(FileKind::Directory) {
            inode.dir_names.push(name);
        }
        Ok(())
    }

    /// Checks a name at an index that another name had at the last commit.
    fn index(
        &mut self,
        log: &mut OneLog,
        dir: u64,
        index: u64,
        name: &[u8],
    ) -> Result<(), CheckError> {
        let key = Key::new(dir, KeyType::DIR_INDEX, index);
        let Ok(Some(item)) = log.lookup.committed(&key) else {
            return Ok(());
        };
        let Some(old) = DirEntries::new(&item).find(|old| old.name != name) else {
            return Ok(());
        };
        let child = old.location().objectid;
        let lookup = &log.lookup;
        let gone = lookup
            .is_removed(dir, index, old.name)
            .and_then(|gone| Ok(gone || lookup.has_refs_of(child, dir, old.name)?));
        match gone {
            Ok(false) => log
                .names
                .add(NameKind::OldOfIndex, (dir, old.name), (child, index)),
            _ => Ok(()),
        }
    }

    /// Checks a DIR_INDEX.
    fn entry(
        &mut self,
        log: &mut OneLog,
        (key, bytes): (Key, &[u8]),
        entry: &DirEntry<'_>,
    ) -> Result<(), CheckError> {
        let (dir, index) = (key.objectid, key.offset);
        let location = entry.location();
        let child = location.objectid;
        if location.item_type != KeyType::INODE_ITEM {
            let committed = log.lookup.committed(&key);
            if committed.is_ok_and(|item| item.is_none_or(|item| *item != *bytes)) {
                let subvolume = child;
                self.add(log, key, Fault::LogSubvolumeEntry { subvolume });
            }
            return Ok(());
        }
        match log.lookup.inode(child) {
            Ok(None) => self.add(log, key, Fault::LogEntryToNothing { inode: child }),
            Ok(Some(item)) => {
                let wanted = FileKind::from_mode(item.mode.get()).map_or(0, FileKind::raw);
                let entry = entry.head.type_;
                if entry != wanted {
                    let inode = child;
                    let fault = Fault::EntryType {
                        inode,
                        entry,
                        wanted,
                    };
                    self.add(log, key, fault);
                }
            }
            Err(_) => {}
        }
        // The replay adds the back reference of an entry if it is missing.
        log.names
            .add(NameKind::Entry, (dir, entry.name), (child, index))?;
        self.index(log, dir, index, entry.name)
    }

    /// Checks a DIR_LOG_INDEX. The replay removes all entries in its range, unless the log contains them.
    fn range(&mut self, log: &OneLog, inode: &LoggedInode, (key, bytes): (Key, &[u8])) {
        if let Some(fault) = inode.check_dir() {
            self.add(log, key, fault);
        }
        let first = key.offset;
        let last = DirLogItem::ref_from_bytes(bytes).map(|item| item.end.get());
        let Some(last) = last.ok().filter(|last| *last >= first) else {
            self.add(log, key, Fault::LogRange { first });
            return;
        };
        let lost = subvolumes_lost(&log.lookup, (inode.number, first, last));
        for (index, subvolume) in lost.unwrap_or_default() {
            let key = Key::new(inode.number, KeyType::DIR_INDEX, index);
            self.add(log, key, Fault::LogSubvolumeEntry { subvolume });
        }
    }

    fn extent(&mut self, log: &OneLog, inode: &mut LoggedInode, (key, bytes): (Key, &[u8])) {
        let Some(extent) = FileExtent::decode(bytes) else {
            return;
        };
        let may_have = match (inode.kind(), &extent) {
            (Some(FileKind::Symlink), FileExtent::Inline { .. }) => true,
            (kind, _) => matches!(kind, Some(FileKind::Regular) | None),
        };
        if !may_have {
            let mode = inode.mode().unwrap_or(0);
            self.add(log, key, Fault::FileExtentOfOther { mode });
        }
        if let Err(fault) = inode.extents.add_extent(key.offset, &extent, self.rules) {
            self.add(log, key, fault);
        }
        if let FileExtent::Regular { head, body, .. } = extent
            && head.compression != 0
            && body.disk().is_some()
            && inode.is_unsummed()
        {
            self.add(log, key, Fault::CompressedNodatasum {});
        }
    }

    /// Checks an inode after all of its items were read.
    pub(super) fn finish_inode(&mut self, log: &mut OneLog) -> Result<(), CheckError> {
        let Some(inode) = log.inode.take().filter(|inode| !inode.is_skipped()) else {
            return Ok(());
        };
        let key = inode_key(inode.number);
        // The replay only recounts the links of an inode with an INODE_ITEM in the log.
        let is_known = inode.committed.is_some() && !inode.has_refs;
        if inode.is_used && inode.item.is_none() && !is_known {
            self.add(log, key, Fault::LogInodeMissing {});
        }
        if let Some(item) = inode.item.filter(|item| item.generation.get() != 0)
            && inode.kind() == Some(FileKind::Symlink)
        {
            let size = item.size.get();
            let target = Key::new(inode.number, KeyType::EXTENT_DATA, 0);
            let is_there = inode.extents.has_target(size)
                || !matches!(log.lookup.committed(&target), Ok(None));
            if !is_there {
                self.add(log, key, Fault::SymlinkTarget { size });
            }
        }
        if inode.kind() == Some(FileKind::Directory) {
            self.finish_directory(log, &inode)?;
        }
        Ok(())
    }

    /// Checks that a directory has a single name and is not its own descendant.
    fn finish_directory(
        &mut self,
        log: &mut OneLog,
        inode: &LoggedInode,
    ) -> Result<(), CheckError> {
        let key = inode_key(inode.number);
        let found = inode.dir_names.len() as u64;
        let Some(name) = inode.dir_names.first() else {
            return Ok(());
        };
        if found > 1 {
            self.add(log, key, Fault::DirLinks { found });
        }
        for old in log.lookup.names_kept(inode.number).unwrap_or_default() {
            if let Ok(false) = is_gone(&log.lookup, &old) {
                let place = (old.dir, &*old.name);
                let facts = (inode.number, old.index);
                log.names.add(NameKind::OldOfDirectory, place, facts)?;
            }
        }
        if let Ok(true) = is_below(&log.lookup, name.dir, inode.number) {
            self.add(log, key, Fault::LogDirCycle {});
        }
        Ok(())
    }

    fn add(&mut self, log: &OneLog, key: Key, fault: Fault) {
        let at = Place::item(RootId::TREE_LOG, key);
        self.state.add_unless(log.is_lost, at, fault);
    }
}

/// Returns whether the log removes a name of the last commit, or a directory on its path.
fn is_gone(lookup: &Lookup, name: &InodeName) -> Result<bool, TreeError> {
    let (mut dir, mut index, mut text) = (name.dir, name.index, name.name.clone());
    for _ in 0..MAX_DEPTH {
        if lookup.is_removed(dir, index, &text)? {
            return Ok(true);
        }
        let names = lookup.names_kept(dir)?;
        let Some(above) = names.into_iter().next() else {
            break;
        };
        (dir, index, text) = (above.dir, above.index, above.name);
    }
    Ok(false)
}

/// Returns whether a directory is equal to or a descendant of another one.
fn is_below(lookup: &Lookup, dir: u64, above: u64) -> Result<bool, TreeError> {
    let mut at = dir;
    for _ in 0..MAX_DEPTH {
        if at == above {
            return Ok(true);
        }
        match lookup.parent(at)? {
            Some(parent) if at != InodeNr::FIRST_FREE.0 => at = parent,
            _ => break,
        }
    }
    Ok(false)
}

/// Returns the subvolume entries, with their indexes, that a range removes from a directory.
fn subvolumes_lost(
    lookup: &Lookup,
    (dir, first, last): (u64, u64, u64),
) -> Result<Vec<(u64, u64)>, TreeError> {
    let mut lost = Vec::new();
    let Some(view) = &lookup.committed else {
        return Ok(lost);
    };
    let from = Key::new(dir, KeyType::DIR_INDEX, first);
    let mut cursor = view.cursor();
    let mut more = cursor.seek(&from)?;
    while more && let Some((key, bytes)) = cursor.current() {
        if (key.objectid, key.item_type) != (from.objectid, from.item_type) || key.offset > last {
            break;
        }
        let entry = DirEntries::new(bytes).next();
        if let Some(location) = entry.map(|entry| entry.location())
            && location.item_type == KeyType::ROOT_ITEM
            && lookup.log.get(&key)?.is_none_or(|item| *item != *bytes)
        {
            lost.push((key.offset, location.objectid));
        }
        more = cursor.advance()?;
    }
    Ok(lost)
}

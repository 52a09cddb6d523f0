//! Consistency of the three records of a name: DIR_ITEM, DIR_INDEX, and INODE_REF or INODE_EXTREF.
//!
//! They are compared as sums first, for a whole subvolume in constant memory. Only if buckets differ, the subvolume
//! is read again and the names of these buckets are sorted by directory and name.
//!
//! Invariants
//! - NAME-1: all records of one name in one directory are in one bucket.

use std::collections::BTreeSet;

use ubtrfs_format::item::{DirEntries, FileKind, InodeExtrefs, InodeItem, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::Sorter;
use zerocopy::FromBytes;

use super::{is_inode, is_root_ref};
use crate::error::CheckError;
use crate::fault::Fault;
use crate::fingerprint::{Hasher, Sums};
use crate::issue::Place;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

const BUCKETS: usize = 256;
/// Maximum number of records of one name that are compared; a valid volume has three.
const MAX_GROUP: usize = 64;

/// One record of a name. `kind` is the file type, as in directory entries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    Item {
        dir: u64,
        child: u64,
        kind: u8,
        name: &'a [u8],
    },
    Index {
        dir: u64,
        child: u64,
        index: u64,
        kind: u8,
        name: &'a [u8],
    },
    Ref {
        dir: u64,
        child: u64,
        index: u64,
        kind: u8,
        name: &'a [u8],
    },
}

/// Sums of the directory entries minus the references.
#[derive(Clone, Debug)]
pub(super) struct NameSums {
    hasher: Hasher,
    items: Sums,
    indexes: Sums,
}

impl NameSums {
    pub(super) fn new() -> NameSums {
        NameSums {
            hasher: Hasher::new(),
            items: Sums::new(BUCKETS),
            indexes: Sums::new(BUCKETS),
        }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.indexes.clear();
    }

    pub(super) fn all_equal(&self) -> bool {
        self.items.all_equal() && self.indexes.all_equal()
    }

    fn of_place(&self, dir: u64, name: &[u8]) -> u64 {
        // NAME-1
        self.hasher.words([dir, self.hasher.bytes(name)])
    }

    pub(super) fn add(&mut self, name: &Name<'_>) {
        let hasher = self.hasher;
        let entry = |place, child, kind: u8| hasher.words([place, child, u64::from(kind)]);
        match *name {
            Name::Item {
                dir,
                child,
                kind,
                name,
            } => {
                let place = self.of_place(dir, name);
                self.items.add(place, entry(place, child, kind));
            }
            Name::Index {
                dir,
                child,
                index,
                kind,
                name,
            } => {
                let place = self.of_place(dir, name);
                let hash = hasher.words([entry(place, child, kind), index]);
                self.indexes.add(place, hash);
            }
            Name::Ref {
                dir,
                child,
                index,
                kind,
                name,
            } => {
                let place = self.of_place(dir, name);
                let entry = entry(place, child, kind);
                self.items.take(place, entry);
                self.indexes.take(place, hasher.words([entry, index]));
            }
        }
    }

    fn differs(&self, place: u64) -> bool {
        self.items.differs(place) || self.indexes.differs(place)
    }
}

/// directory, hash of the name, kind of record, child, index, file type
type Record = [u64; 6];

const ITEM: u64 = 0;
const INDEX: u64 = 1;
const REF: u64 = 2;

/// Reads the tree again and reports the inconsistent names.
pub(super) fn find_faults(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    root: &TreeRoot,
    sums: &NameSums,
) -> Result<(), CheckError> {
    let mut recorder = Recorder {
        sums,
        sorter: state.sorter(),
        inode: (0, 0),
    };
    walk(volume, &[*root], &mut recorder)?;
    let mut sorted = recorder.sorter.finish()?;
    let mut group: Vec<Record> = Vec::new();
    while let Some(record) = sorted.next_record()? {
        if group.first().is_some_and(|first| first[..2] != record[..2]) {
            check_group(state, volume, root, &group);
            group.clear();
        }
        if group.len() < MAX_GROUP {
            group.push(record);
        }
    }
    check_group(state, volume, root, &group);
    Ok(())
}

struct Recorder<'n> {
    sums: &'n NameSums,
    sorter: Sorter<[u64; 6]>,
    /// The current inode and its file type.
    inode: (u64, u8),
}

impl Visitor for Recorder<'_> {
    fn block(&mut self, _: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        for (key, bytes) in block.node.items() {
            if is_inode(key.objectid) {
                self.item(key, bytes)?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, _: &TreeRoot, _: Lost) -> Result<(), CheckError> {
        Ok(())
    }
}

/// Returns the inode that an entry refers to, or 0 if it is not an inode.
pub(super) fn child_of(location: Key) -> u64 {
    match location.item_type {
        KeyType::INODE_ITEM => location.objectid,
        _ => 0,
    }
}

impl Recorder<'_> {
    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        if self.inode.0 != key.objectid {
            self.inode = (key.objectid, 0);
        }
        let (number, kind) = (key.objectid, u64::from(self.inode.1));
        match key.item_type {
            KeyType::INODE_ITEM => {
                let item = InodeItem::ref_from_bytes(bytes).ok();
                let kind = item.and_then(|item| FileKind::from_mode(item.mode.get()));
                self.inode.1 = kind.map_or(0, FileKind::raw);
            }
            KeyType::INODE_REF => {
                for entry in InodeRefs::new(bytes) {
                    if is_root_ref(key, &entry) {
                        continue;
                    }
                    let facts = [REF, number, entry.index, kind];
                    self.record(key.offset, entry.name, facts)?;
                }
            }
            KeyType::INODE_EXTREF => {
                for entry in InodeExtrefs::new(bytes) {
                    let facts = [REF, number, entry.index, kind];
                    self.record(entry.parent, entry.name, facts)?;
                }
            }
            KeyType::DIR_ITEM | KeyType::DIR_INDEX => {
                for entry in DirEntries::new(bytes) {
                    if entry.location().item_type == KeyType::ROOT_ITEM {
                        continue;
                    }
                    let (place, index) = match key.item_type {
                        KeyType::DIR_ITEM => (ITEM, 0),
                        _ => (INDEX, key.offset),
                    };
                    let child = child_of(entry.location());
                    let facts = [place, child, index, u64::from(entry.head.type_)];
                    self.record(number, entry.name, facts)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&mut self, dir: u64, name: &[u8], facts: [u64; 4]) -> Result<(), CheckError> {
        let place = self.sums.of_place(dir, name);
        if self.sums.differs(place) {
            let [at, child, index, kind] = facts;
            self.sorter.push([dir, place, at, child, index, kind])?;
        }
        Ok(())
    }
}

/// Checks all records of one name in one directory.
fn check_group(state: &mut State<'_>, volume: &CheckedVolume, root: &TreeRoot, group: &[Record]) {
    let Some(&[dir, ..]) = group.first() else {
        return;
    };
    let children: BTreeSet<u64> = group.iter().map(|record| record[3]).collect();
    // Duplicates within a DIR_ITEM were reported when it was read.
    for twice in group.iter().filter(|record| record[2] == INDEX).skip(1) {
        let [_, _, _, inode, index, _] = *twice;
        let key = Key::new(dir, KeyType::DIR_INDEX, index);
        let fault = Fault::EntryTwice { inode, index };
        state.add(Place::item(root.tree, key), fault);
    }
    for child in children {
        let find = |at| {
            let of_child = |record: &&Record| record[2] == at && record[3] == child;
            let record = group.iter().find(of_child)?;
            Some((record[4], record[5] as u8))
        };
        let child = Child {
            dir,
            inode: child,
            item: find(ITEM),
            index: find(INDEX),
            reference: find(REF),
        };
        child.check(state, volume, root);
    }
}

/// The index and file type of each record of a name; a DIR_ITEM has no index.
struct Child {
    dir: u64,
    inode: u64,
    item: Option<(u64, u8)>,
    index: Option<(u64, u8)>,
    reference: Option<(u64, u8)>,
}

impl Child {
    /// Returns whether the directory is unlinked and waits for its deletion.
    fn is_dir_deleted(&self, volume: &CheckedVolume, root: &TreeRoot) -> bool {
        let wanted = Key::new(self.dir, KeyType::INODE_ITEM, 0);
        let Ok(Some(item)) = volume.view(root).get(&wanted) else {
            return false;
        };
        InodeItem::ref_from_bytes(&item).is_ok_and(|inode| inode.nlink.get() == 0)
    }

    fn check(&self, state: &mut State<'_>, volume: &CheckedVolume, root: &TreeRoot) {
        let (tree, inode) = (root.tree, self.inode);
        let dir_lost = state.may_have_lost(tree, self.dir);
        let inode_lost = state.may_have_lost(tree, inode);
        let item_at = Place::item(tree, Key::new(self.dir, KeyType::DIR_ITEM, 0));
        let known_index = self.index.or(self.reference).map_or(0, |(index, _)| index);
        let index_key = Key::new(self.dir, KeyType::DIR_INDEX, known_index);
        let index_at = Place::item(tree, index_key);
        let ref_key = Key::new(inode, KeyType::INODE_REF, self.dir);
        let ref_at = Place::item(tree, ref_key);
        let index = known_index;
        if self.reference.is_none() && self.is_dir_deleted(volume, root) {
            let at = if self.index.is_some() {
                index_at
            } else {
                item_at
            };
            state.add(at, Fault::EntryInDeletedDir { inode, index });
            return;
        }
        if self.item.is_none() {
            let fault = Fault::DirItemMissing { inode, index };
            state.add_unless(dir_lost, item_at, fault);
        }
        if self.index.is_none() {
            let fault = Fault::DirIndexMissing { inode, index };
            state.add_unless(dir_lost, index_at, fault);
        }
        let Some((wanted_index, wanted)) = self.reference else {
            let wanted = Key::new(inode, KeyType::INODE_ITEM, 0);
            let is_there = !matches!(volume.view(root).get(&wanted), Ok(None));
            if is_there {
                let fault = Fault::InodeRefMissing { inode, index };
                state.add_unless(inode_lost, ref_at, fault);
            } else {
                let fault = Fault::EntryToNothing { inode };
                state.add_unless(inode_lost, index_at, fault);
            }
            return;
        };
        let entries = [self.item, self.index];
        let other_kind = entries.iter().flatten().find(|(_, kind)| *kind != wanted);
        // Without an INODE_ITEM, which was reported before, the file type is unknown.
        if let Some(&(_, entry)) = other_kind.filter(|_| wanted != 0) {
            let fault = Fault::EntryType {
                inode,
                entry,
                wanted,
            };
            state.add_unless(inode_lost, index_at, fault);
        }
        if let Some((index, _)) = self.index
            && index != wanted_index
        {
            let fault = Fault::EntryIndex {
                inode,
                index,
                wanted: wanted_index,
            };
            state.add(index_at, fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the three records of a name; the two entries refer to `item` and `index`.
    fn add(sums: &mut NameSums, dir: u64, name: &[u8], [item, index]: [u64; 2]) {
        let kind = FileKind::Regular.raw();
        sums.add(&Name::Item {
            dir,
            child: item,
            kind,
            name,
        });
        sums.add(&Name::Index {
            dir,
            child: index,
            index: 2,
            kind,
            name,
        });
        sums.add(&Name::Ref {
            dir,
            child: 300,
            index: 2,
            kind,
            name,
        });
    }

    /// NAME-1
    #[test]
    fn records_of_a_name_cancel_in_its_bucket() {
        let mut sums = NameSums::new();
        for dir in 256..1256 {
            add(&mut sums, dir, b"name", [300, 300]);
        }
        assert!(sums.all_equal());
        for children in [[301, 300], [300, 301]] {
            sums.clear();
            add(&mut sums, 256, b"name", children);
            assert!(sums.differs(sums.of_place(256, b"name")));
        }
    }
}

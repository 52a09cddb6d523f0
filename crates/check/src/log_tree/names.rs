//! The names that one log adds and removes, compared by directory and name.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::Sorter;

use super::lookup::inode_key;
use crate::error::CheckError;
use crate::fault::Fault;
use crate::fingerprint::Hasher;
use crate::issue::Place;
use crate::state::State;

/// Maximum number of records of one name to compare; a valid log has two.
const MAX_GROUP: usize = 64;

/// directory, hash of the name, kind of record, inode, index
type Record = [u64; 5];

/// The kind of record with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A DIR_INDEX of the log.
    Entry,
    /// A back reference of the log.
    Ref,
    /// A name of the last commit, of a directory that has a new name in the log.
    OldOfDirectory,
    /// A name of the last commit whose index the log assigns to another name.
    OldOfIndex,
}

impl NameKind {
    fn number(self) -> u64 {
        self as u64
    }
}

pub(super) struct LoggedNames {
    hasher: Hasher,
    sorter: Sorter<[u64; 5]>,
}

impl LoggedNames {
    pub(super) fn new(state: &State<'_>) -> LoggedNames {
        LoggedNames {
            hasher: Hasher::new(),
            sorter: state.sorter(),
        }
    }

    pub(super) fn add(
        &mut self,
        kind: NameKind,
        (dir, name): (u64, &[u8]),
        (inode, index): (u64, u64),
    ) -> Result<(), CheckError> {
        let hash = self.hasher.bytes(name);
        let record = [dir, hash, kind.number(), inode, index];
        Ok(self.sorter.push(record)?)
    }

    /// Checks all names. With `is_lost`, parts of the log may be missing.
    pub(super) fn finish(self, state: &mut State<'_>, is_lost: bool) -> Result<(), CheckError> {
        let mut sorted = self.sorter.finish()?;
        let mut group: Vec<Record> = Vec::new();
        while let Some(record) = sorted.next_record()? {
            if group.first().is_some_and(|first| first[..2] != record[..2]) {
                check_group(state, &group, is_lost);
                group.clear();
            }
            if group.len() < MAX_GROUP && group.last() != Some(&record) {
                group.push(record);
            }
        }
        check_group(state, &group, is_lost);
        Ok(())
    }
}

/// Checks all records of one name in one directory.
fn check_group(state: &mut State<'_>, group: &[Record], is_lost: bool) {
    let of = |kind: NameKind| {
        let records = group.iter().filter(move |r| r[2] == kind.number());
        records.map(|&[dir, _, _, inode, index]| (dir, inode, index))
    };
    let mut add = |key, fault| state.add_unless(is_lost, Place::item(RootId::TREE_LOG, key), fault);
    let logged = || of(NameKind::Entry).chain(of(NameKind::Ref));
    if let Some((_, first, _)) = logged().next() {
        let other_entries = of(NameKind::Entry).skip(1);
        let other_refs = of(NameKind::Ref).filter(|(_, inode, _)| *inode != first);
        for (dir, inode, index) in other_entries.chain(other_refs) {
            let key = Key::new(dir, KeyType::DIR_INDEX, index);
            add(key, Fault::EntryTwice { inode, index });
        }
    }
    if let (Some((dir, inode, index)), Some((_, of_ref, wanted))) =
        (of(NameKind::Entry).next(), of(NameKind::Ref).next())
        && inode == of_ref
        && index != wanted
    {
        let fault = Fault::EntryIndex {
            inode,
            index,
            wanted,
        };
        add(Key::new(dir, KeyType::DIR_INDEX, index), fault);
    }
    for (_, directory, _) in of(NameKind::OldOfDirectory) {
        // The name may go to another inode.
        if logged().all(|(_, inode, _)| inode == directory) {
            add(inode_key(directory), Fault::DirLinks { found: 2 });
        }
    }
    for (dir, inode, index) in of(NameKind::OldOfIndex) {
        if logged().next().is_none() {
            let key = Key::new(dir, KeyType::DIR_INDEX, index);
            add(key, Fault::LogIndexTaken { inode, index });
        }
    }
}

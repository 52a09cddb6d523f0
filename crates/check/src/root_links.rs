//! Consistency of the four records of a subvolume's location: ROOT_REF, ROOT_BACKREF, DIR_ITEM and DIR_INDEX.
//!
//! A snapshot contains copies of the entries of nested subvolumes, without a ROOT_REF. So entries alone are valid if
//! both of them exist.

use std::collections::BTreeMap;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::Sorter;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::fingerprint::Hasher;
use crate::issue::Place;
use crate::root_entry::RootEntry;
use crate::state::State;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Ref,
    Backref,
    DirItem,
    DirIndex,
}

const LINKS: [Link; 4] = [Link::Ref, Link::Backref, Link::DirItem, Link::DirIndex];

/// The collected location records of subvolumes.
#[derive(Debug)]
pub(crate) struct RootLinks {
    hasher: Hasher,
    /// child, parent, directory, hash of the name, kind, index.
    sorter: Sorter<[u64; 6]>,
}

/// All records with the same child, tree, directory and name.
struct Group {
    child: u64,
    parent: u64,
    dir: u64,
    /// The index in each kind of record.
    index: [Option<u64>; 4],
}

impl RootLinks {
    pub(crate) fn new(sorter: Sorter<[u64; 6]>) -> RootLinks {
        RootLinks {
            hasher: Hasher::new(),
            sorter,
        }
    }

    /// Adds a record. The tuple is tree, directory and name. A DIR_ITEM has no index.
    pub(crate) fn add(
        &mut self,
        child: u64,
        (parent, dir, name): (u64, u64, &[u8]),
        link: Link,
        index: u64,
    ) -> Result<(), CheckError> {
        let name = self.hasher.bytes(name);
        self.sorter
            .push([child, parent, dir, name, link as u64, index])?;
        Ok(())
    }

    pub(crate) fn check(
        self,
        state: &mut State<'_>,
        roots: &BTreeMap<u64, &RootEntry>,
    ) -> Result<(), CheckError> {
        let mut sorted = self.sorter.finish()?;
        let mut group: Option<([u64; 4], Group)> = None;
        while let Some([child, parent, dir, name, link, index]) = sorted.next_record()? {
            let key = [child, parent, dir, name];
            if group.as_ref().is_none_or(|(of, _)| *of != key) {
                if let Some((_, done)) = group.take() {
                    done.check(state, roots);
                }
                let index = [None; 4];
                let new = Group {
                    child,
                    parent,
                    dir,
                    index,
                };
                group = Some((key, new));
            }
            if let Some((_, group)) = &mut group {
                group.index[LINKS[link as usize % LINKS.len()] as usize] = Some(index);
            }
        }
        if let Some((_, done)) = group {
            done.check(state, roots);
        }
        Ok(())
    }
}

impl Group {
    fn check(&self, state: &mut State<'_>, roots: &BTreeMap<u64, &RootEntry>) {
        let [by_ref, backref, item, by_index] = self.index;
        let (child, parent, dir) = (self.child, self.parent, self.dir);
        let (tree, parent_tree) = (RootId(child), RootId(parent));
        let at = Place::item(
            RootId::ROOT_TREE,
            Key::new(parent, KeyType::ROOT_REF, child),
        );
        let entries_lost = state.may_have_lost(parent_tree, dir);
        let Some(index) = by_ref else {
            if backref.is_some() {
                let lost = state.may_have_lost(RootId::ROOT_TREE, parent);
                let key = Key::new(child, KeyType::ROOT_BACKREF, parent);
                let at = Place::item(RootId::ROOT_TREE, key);
                state.add_unless(lost, at, Fault::RootRefMissing { parent });
            } else if item.is_some() != by_index.is_some() {
                let at = Place::tree(parent_tree);
                let fault = Fault::RootDirEntriesDiffer { dir, child };
                state.add_unless(entries_lost, at, fault);
            }
            return;
        };
        let roots_lost = state.may_have_lost(RootId::ROOT_TREE, child);
        if roots.get(&tree.0).is_none() {
            state.add_unless(roots_lost, at, Fault::RootRefToNothing { parent });
        }
        if backref != Some(index) {
            state.add_unless(roots_lost, at, Fault::RootBackrefMissing { parent });
        }
        // The entries in a tree that is missing or being deleted are unknown.
        let is_alive = roots.get(&parent).is_some_and(|entry| !entry.is_deleted());
        let entries_lost = entries_lost || !is_alive;
        if item.is_none() {
            let fault = Fault::RootDirItemMissing { parent, dir, index };
            state.add_unless(entries_lost, at, fault);
        }
        if by_index != Some(index) {
            let fault = Fault::RootDirIndexMissing { parent, dir, index };
            state.add_unless(entries_lost, at, fault);
        }
    }
}

//! Consistency of unlinked inodes and the orphan items of their subvolume.
//!
//! Orphan items follow all inodes in key order, and both are ascending. Inodes with links may have orphan items, too:
//! old kernels created them for truncations.

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::{Sorted, Sorter};

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;

#[derive(Debug)]
pub(super) struct Orphans {
    /// Inodes without links.
    unlinked: Unlinked,
    /// The next unlinked inode without an orphan item so far.
    next: Option<u64>,
}

#[derive(Debug)]
enum Unlinked {
    Collecting(Sorter<[u64; 1]>),
    Comparing(Sorted<[u64; 1]>),
    Done,
}

impl Orphans {
    pub(super) fn new(sorter: Sorter<[u64; 1]>) -> Orphans {
        Orphans {
            unlinked: Unlinked::Collecting(sorter),
            next: None,
        }
    }

    pub(super) fn unlinked(&mut self, inode: u64) -> Result<(), CheckError> {
        if let Unlinked::Collecting(sorter) = &mut self.unlinked {
            sorter.push([inode])?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), CheckError> {
        self.next = match &mut self.unlinked {
            Unlinked::Comparing(sorted) => sorted.next_record()?.map(|[inode]| inode),
            _ => None,
        };
        Ok(())
    }

    fn start(&mut self) -> Result<(), CheckError> {
        match std::mem::replace(&mut self.unlinked, Unlinked::Done) {
            Unlinked::Collecting(sorter) => {
                self.unlinked = Unlinked::Comparing(sorter.finish()?);
                self.advance()
            }
            other => {
                self.unlinked = other;
                Ok(())
            }
        }
    }

    pub(super) fn orphan(
        &mut self,
        state: &mut State<'_>,
        volume: &CheckedVolume,
        root: &TreeRoot,
        inode: u64,
    ) -> Result<(), CheckError> {
        self.start()?;
        while let Some(next) = self.next.filter(|&next| next < inode) {
            missing(state, root.tree, next);
            self.advance()?;
        }
        if self.next == Some(inode) {
            return self.advance();
        }
        let wanted = Key::new(inode, KeyType::INODE_ITEM, 0);
        // An unreadable block was already reported.
        let is_there = !matches!(volume.view(root).get(&wanted), Ok(None));
        if !is_there {
            let key = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, inode);
            let at = Place::item(root.tree, key);
            state.add(at, Fault::OrphanWithoutInode {});
        }
        Ok(())
    }

    pub(super) fn end(&mut self, state: &mut State<'_>, tree: RootId) -> Result<(), CheckError> {
        self.start()?;
        while let Some(next) = self.next {
            missing(state, tree, next);
            self.advance()?;
        }
        Ok(())
    }
}

fn missing(state: &mut State<'_>, tree: RootId, inode: u64) {
    let lost = state.may_have_lost(tree, objectid::ORPHAN);
    let at = Place::item(tree, Key::new(inode, KeyType::INODE_ITEM, 0));
    state.add_unless(lost, at, Fault::OrphanMissing {});
}

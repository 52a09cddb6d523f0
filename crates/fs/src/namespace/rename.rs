//! Renaming: within a directory, to another directory, over an existing name, or exchanging two names.
//!
//! Subvolumes may move between subvolumes, other inodes may not. A directory never moves into itself.
//!
//! Locks: `InodeTable::rename_lock` if a directory changes its parent or a subvolume moves at all; then both
//! directories. The inodes behind the names are only tried. If one is busy, all locks are released and taken
//! again in order, and the names are looked up again.

mod exchange;
mod place;
mod replace;

use std::sync::Arc;

use ubtrfs_format::item::{FileTime, InodeItem};
use ubtrfs_storage::{EditEstimate, FileId, lock};

use super::entry::check_name;
use super::new_inode::NewInode;
use crate::error::{CorruptItem, Error, Result};
use crate::inode::{
    Inode, Locked, check_mutable, inode_item_cached, may_remove, may_write, must_be_dir,
};
use crate::namespace::Namespace;
use place::{Drafts, Place};

/// The treatment of an existing new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RenameMode {
    #[default]
    Replace,
    /// Fail.
    NoReplace,
    /// Exchange the two names.
    Exchange,
}

/// Deeper nesting than this can only be a loop.
const MAX_DEPTH: usize = 1 << 20;
/// Items of a rename, including the items of a small file that it replaces.
const COST: u64 = 56;

/// A rename with locked and resolved names.
struct Rename<'a> {
    namespace: &'a Namespace,
    old: &'a Place<'a>,
    new_dir: &'a Arc<Inode>,
    new_name: &'a [u8],
    now: FileTime,
}

impl Namespace {
    /// Renames `name` of `dir` to `to`, a directory and a name.
    pub(crate) fn rename(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_with((dir, name), to, mode, None)
    }

    /// Renames like `rename`, and creates an inode from `whiteout` under the old name. Overlay file systems
    /// hide names of lower layers by a character device 0:0.
    pub(crate) fn rename_leaving(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode<'_>,
    ) -> Result<()> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid("whiteout of an exchange"));
        }
        whiteout.check(self.roots.node_store().nodesize())?;
        self.rename_with((dir, name), to, mode, Some(whiteout))
    }

    fn rename_with(
        &self,
        (dir, name): (FileId, &[u8]),
        (new_dir, new_name): (FileId, &[u8]),
        mode: RenameMode,
        whiteout: Option<&NewInode<'_>>,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let reservation = self
            .inodes
            .reserve_metadata(new_dir.root, EditEstimate::items(COST))?;
        let parents = [
            self.inodes.inode_in_use(dir)?,
            self.inodes.inode_in_use(new_dir)?,
        ];
        let mut still = None;
        loop {
            let (old, new);
            let mut locked = Locked::all(&parents)?;
            let mut drafts = Drafts::new(self);
            let Some(found) = drafts.place(&parents[0], name)? else {
                must_be_dir(dir, &inode_item_cached(&parents[0].tree, dir)?)?;
                return Err(Error::NotFound);
            };
            old = found;
            new = drafts.place(&parents[1], new_name)?;
            let moves = old.changes_ancestors(new_dir)
                || mode == RenameMode::Exchange
                    && new
                        .as_ref()
                        .is_some_and(|place| place.changes_ancestors(dir));
            if moves && still.is_none() {
                drop(locked);
                still = Some(lock::lock(self.inodes.rename_lock())?);
                continue;
            }
            let places = [Some(&old), new.as_ref()].into_iter().flatten();
            let inodes = places.filter_map(|place| place.inode.as_ref());
            if !inodes.clone().all(|inode| locked.try_add(inode)) {
                drop(locked);
                locked = Locked::all(parents.iter().chain(inodes))?;
                drafts = Drafts::new(self);
                if drafts.find(&parents[0], name)? != Some(old.entry)
                    || drafts.find(&parents[1], new_name)? != new.as_ref().map(|place| place.entry)
                {
                    continue;
                }
            }
            let rename = Rename {
                namespace: self,
                old: &old,
                new_dir: &parents[1],
                new_name,
                now: FileTime::now(),
            };
            match (mode, &new) {
                (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
                (RenameMode::Exchange, None) => return Err(Error::NotFound),
                _ => {}
            }
            rename.refuse_loops(new.as_ref(), mode)?;
            let outcome = match (mode, &new) {
                (_, Some(new)) if rename.is_same(new) => Ok(()),
                (RenameMode::Exchange, Some(new)) => {
                    rename.exchange(reservation, locked, drafts, new)
                }
                (_, new) => rename.replace(reservation, locked, drafts, new.as_ref(), whiteout),
            };
            let places = [Some(&old), new.as_ref()].into_iter().flatten();
            // Keep directories in the table, as their cached names are useful.
            let files = places.filter(|place| !place.is_dir());
            for inode in files.filter_map(|place| place.inode.as_ref()) {
                self.inodes.release(inode);
            }
            return outcome;
        }
    }

    /// Returns whether the directory `above` is `dir` or one of its ancestors.
    fn is_above(&self, above: FileId, dir: FileId) -> Result<bool> {
        let mut at = dir;
        for _ in 0..MAX_DEPTH {
            if at == above {
                return Ok(true);
            }
            let parent = self.parent(at)?;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
        Err(Error::Corrupt {
            tree: dir.root,
            key: dir.location(),
            what: CorruptItem::Loop,
        })
    }
}

impl Rename<'_> {
    /// Returns whether both names lead to the same inode. Empty subvolume directories all have the same
    /// number, but are different inodes.
    fn is_same(&self, new: &Place<'_>) -> bool {
        let is_one_place = self.old.dir.id == new.dir.id && self.old.name == new.name;
        is_one_place || self.old.id == new.id && !new.id.is_empty_subvolume_dir()
    }

    /// Checks that no directory moves into itself or replaces one of its ancestors.
    fn refuse_loops(&self, new: Option<&Place<'_>>, mode: RenameMode) -> Result<()> {
        if self.within_dir() {
            return Ok(());
        }
        if self.old.is_dir() && self.namespace.is_above(self.old.id, self.new_dir.id)? {
            return Err(Error::Invalid("directory moved into itself"));
        }
        let Some(new) = new.filter(|new| new.is_dir() && !new.id.is_empty_subvolume_dir()) else {
            return Ok(());
        };
        match (self.namespace.is_above(new.id, self.old.dir.id)?, mode) {
            (false, _) => Ok(()),
            (true, RenameMode::Exchange) => Err(Error::Invalid("directory moved into itself")),
            (true, _) => Err(Error::NotEmpty(new.id)),
        }
    }

    /// Checks that a name may be removed. `dir` is the item of its directory. Returns the item of its inode,
    /// or None for an empty subvolume directory.
    fn may_leave(&self, place: &Place<'_>, dir: &InodeItem) -> Result<Option<InodeItem>> {
        may_remove(&place.dir.tree, place.dir.id, dir)?;
        if place.id.is_empty_subvolume_dir() {
            return Ok(None);
        }
        let item = match &place.inode {
            Some(inode) => inode_item_cached(&inode.tree, place.id)?,
            None => {
                let tree = self.namespace.roots.tree_of(place.id)?;
                inode_item_cached(&tree, place.id)?
            }
        };
        check_mutable(place.id, &item)?;
        Ok(Some(item))
    }

    /// Checks that an inode may move. A directory that gets another parent is itself changed.
    fn may_move(&self, place: &Place<'_>) -> Result<()> {
        if self.within_dir() || !place.is_dir() || place.id.is_empty_subvolume_dir() {
            return Ok(());
        }
        let tree = self.namespace.roots.tree_of(place.id)?;
        may_write(&tree, place.id, &inode_item_cached(&tree, place.id)?)
    }

    fn within_dir(&self) -> bool {
        self.old.dir.id == self.new_dir.id
    }
}

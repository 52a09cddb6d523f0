//! Names with their targets, and drafts that move them.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileKind;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{FileId, TransactionHandle};

use crate::error::{CorruptItem, Error, Result};
use crate::inode::{Draft, Inode};
use crate::namespace::Namespace;
use crate::namespace::entry::{FoundEntry, NewEntry, entry_key, search_index};
use crate::namespace::root_ref::RootPlace;

/// A name with its target.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a Arc<Inode>,
    pub(super) name: &'a [u8],
    pub(super) entry: FoundEntry,
    /// The root directory of a subvolume, or an empty subvolume directory, if the entry leads to a subvolume.
    pub(super) id: FileId,
    /// None for subvolumes and empty subvolume directories, whose own items do not change.
    pub(super) inode: Option<Arc<Inode>>,
}

impl Place<'_> {
    pub(super) fn is_dir(&self) -> bool {
        self.entry.kind == FileKind::Directory.raw()
    }

    pub(super) fn is_subvolume(&self) -> bool {
        self.inode.is_none()
    }

    /// Returns whether moving it to `dir` changes the ancestors of any directory.
    pub(super) fn changes_ancestors(&self, dir: FileId) -> bool {
        self.is_subvolume() || self.is_dir() && self.dir.id != dir
    }

    fn corrupt(&self, what: CorruptItem) -> Error {
        Error::Corrupt {
            tree: self.dir.id.root,
            key: entry_key(self.dir.id.ino.0, self.name),
            what,
        }
    }
}

/// Drafts of the trees that a rename changes.
pub(super) struct Drafts<'t> {
    namespace: &'t Namespace,
    root_tree: &'t Arc<Tree>,
    drafts: Vec<Draft<'t>>,
}

impl<'t> Drafts<'t> {
    pub(super) fn new(namespace: &'t Namespace) -> Drafts<'t> {
        Drafts {
            namespace,
            root_tree: namespace.roots.root_tree_object(),
            drafts: Vec::with_capacity(1),
        }
    }

    pub(super) fn of(&mut self, tree: &'t Arc<Tree>) -> &mut Draft<'t> {
        let known = self
            .drafts
            .iter()
            .position(|draft| Arc::ptr_eq(draft.tree(), tree));
        let at = known.unwrap_or_else(|| {
            self.drafts.push(Draft::new(tree));
            self.drafts.len() - 1
        });
        &mut self.drafts[at]
    }

    /// Looks up `name` in `dir`, which is locked. The caller can then lock the inode of the result.
    pub(super) fn place(
        &mut self,
        dir: &'t Arc<Inode>,
        name: &'t [u8],
    ) -> Result<Option<Place<'t>>> {
        let Some(entry) = self.find(dir, name)? else {
            return Ok(None);
        };
        let namespace = self.namespace;
        let (id, inode) = match entry.inode_in(dir.id, name)? {
            Some(id) => (id, Some(namespace.inodes.get_in(&dir.tree, id))),
            None => {
                let child = RootId(entry.location.objectid);
                (namespace.nested_subvolume(dir.id, name, child)?, None)
            }
        };
        Ok(Some(Place {
            dir,
            name,
            entry,
            id,
            inode,
        }))
    }

    /// Looks up the entry `name` in `dir`.
    pub(super) fn find(&mut self, dir: &'t Arc<Inode>, name: &[u8]) -> Result<Option<FoundEntry>> {
        self.of(&dir.tree).find_entry(dir.id.ino, name)
    }

    /// Removes a name, without updating sizes and times.
    pub(super) fn detach(&mut self, place: &Place<'t>) -> Result<()> {
        let (dir, name) = (place.dir.id, place.name);
        let index = if place.is_subvolume() {
            let draft = self.of(self.root_tree);
            draft.remove_root_ref(dir.root, place.id.root, dir.ino, name)?
        } else {
            let draft = self.of(&place.dir.tree);
            draft.remove_ref(place.id.ino, dir.ino, name)?
        };
        let draft = self.of(&place.dir.tree);
        draft.remove_entry(dir.ino, name, index)
    }

    /// Removes the name of a nested subvolume that the snapshot did not copy.
    pub(super) fn detach_empty_subvolume_dir(&mut self, place: &Place<'t>) -> Result<()> {
        let (dir, name) = (place.dir.id, place.name);
        let index = search_index(&place.dir.tree.view, dir, name)?.ok_or(Error::NotFound)?;
        self.of(&place.dir.tree).remove_entry(dir.ino, name, index)
    }

    /// Adds another name for the target of `place`.
    pub(super) fn attach(
        &mut self,
        place: &Place<'t>,
        dir: &'t Arc<Inode>,
        name: &[u8],
        index: u64,
        extrefs: bool,
    ) -> Result<()> {
        let kind = FileKind::from_raw(place.entry.kind);
        let entry = NewEntry {
            name,
            index,
            location: place.entry.location,
            kind: kind.ok_or_else(|| place.corrupt(CorruptItem::Undecodable))?,
        };
        self.of(&dir.tree).add_entry(dir.id.ino, entry)?;
        if !place.is_subvolume() {
            let draft = self.of(&dir.tree);
            return draft.add_ref(place.id.ino, dir.id.ino, index, name, extrefs);
        }
        let at = RootPlace {
            parent: dir.id.root,
            dir: dir.id.ino,
            index,
            name,
        };
        self.of(self.root_tree).insert_root_ref(place.id.root, at);
        Ok(())
    }

    pub(super) fn enter(self, txn: &TransactionHandle<'_>) {
        for draft in self.drafts {
            draft.enter(txn);
        }
    }
}

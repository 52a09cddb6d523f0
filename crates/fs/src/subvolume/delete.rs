//! Deleting subvolumes: the name is removed, and the cleaner of later commits frees the tree.

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileTime, RootItemFlags};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_storage::{EditEstimate, FileId, lock};

use super::uuid_tree::UuidKind;
use super::{SubvolumeInfo, SubvolumePlace, Subvolumes};
use crate::error::{Error, Result};
use crate::inode::{Draft, Inode, Locked};
use crate::namespace::{Rmdir, check_empty, check_name, find_entry, search_index};

impl Subvolumes {
    /// Deletes the subvolume `name` in `dir` with all its files. Later commits free its blocks. Files that
    /// are held stay usable, and keep the whole subvolume until they are released.
    pub(crate) fn delete_subvolume(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.delete_subvolume_if(dir, name, |_| Ok(())).map(drop)
    }

    /// Deletes a subvolume unless `check` refuses its root directory, which is returned. Both directories are
    /// locked during the check, so nothing moves and no attribute changes. `check` must not lock an inode
    /// (`Inodes::stored_attr`, not `Inodes::attr`).
    pub(crate) fn delete_subvolume_if<E: From<Error>>(
        &self,
        dir: FileId,
        name: &[u8],
        check: impl FnOnce(FileId) -> Result<(), E>,
    ) -> Result<FileId, E> {
        self.delete_locked(dir, name, false, check)
    }

    /// Deletes a subvolume by its id, unless `check` refuses its parent directory or its root directory. Both
    /// are locked, as for `delete_subvolume_if`. Returns the subvolume's former place.
    pub(crate) fn delete_subvolume_by_id<E: From<Error>>(
        &self,
        id: RootId,
        mut check: impl FnMut(FileId, FileId) -> Result<(), E>,
    ) -> Result<SubvolumePlace, E> {
        let root = self.roots.root_dir(id).map_err(Error::from)?;
        loop {
            let place = self.roots.subvolume_place(id).map_err(Error::from)?;
            let place = place.ok_or(Error::NoSuchSubvolume(id))?;
            let mut found_dir = None;
            let deleted = self.delete_locked(place.dir, &place.name, false, |found| {
                found_dir = Some(found);
                if found == root {
                    check(place.dir, root)
                } else {
                    Err(Error::NotFound.into())
                }
            });
            let was_moved = match (found_dir, &deleted) {
                (Some(found), _) => found != root,
                (None, Ok(_)) => false,
                (None, Err(_)) => {
                    let found = self.roots.subvolume_place(id).map_err(Error::from)?;
                    found.as_ref() != Some(&place)
                }
            };
            if !was_moved {
                return deleted.map(|_| place);
            }
        }
    }

    /// Deletes an empty directory or an empty subvolume. Also removes the entry of a nested subvolume that a
    /// snapshot did not copy.
    pub(crate) fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<()> {
        match self.namespace.rmdir(dir, name)? {
            Rmdir::Removed => Ok(()),
            Rmdir::Subvolume(parent) => self.rmdir_subvolume(&parent, name),
        }
    }

    /// Removes the entry of a subvolume for `rmdir`: deletes an empty subvolume, and removes an entry that
    /// leads nowhere.
    fn rmdir_subvolume(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        match self
            .namespace
            .lookup(parent.id, name)?
            .ok_or(Error::NotFound)?
        {
            empty_dir if empty_dir.is_empty_subvolume_dir() => {
                self.remove_empty_subvolume_dir(parent, name)
            }
            _ => self
                .delete_locked(parent.id, name, true, |_| Ok(()))
                .map(drop),
        }
    }

    fn delete_locked<E: From<Error>>(
        &self,
        dir: FileId,
        name: &[u8],
        must_be_empty: bool,
        check: impl FnOnce(FileId) -> Result<(), E>,
    ) -> Result<FileId, E> {
        check_name(name)?;
        nonblocking::check().map_err(Error::from)?;
        let reservation = self.inodes.reserve_metadata(
            dir.root,
            EditEstimate::items(12).in_leaves(4).with_global_reserve(),
        )?;
        let parent = self.inodes.inode_in_use(dir)?;
        let uuid_tree = self.uuid_tree()?;
        let still = self.inodes.rename_lock().lock();
        // It cannot move now: moving a subvolume takes `rename_lock`.
        let root = self.inodes.get(self.subvolume_entry(dir, name)?)?;
        let _pending = root.tree.snapshot_lock.write();
        let locked = Locked::all([&parent, &root])?;
        let (tree, id) = (&root.tree, root.id.root);
        tree.check_undeleted().map_err(Error::from)?;
        check(root.id)?;
        Draft::new(&parent.tree).may_remove_from(dir)?;
        Draft::new(tree).check_mutable(root.id)?;
        // As in the kernel, a directory that is not empty is the first error of `rmdir`.
        if must_be_empty {
            check_empty(&tree.view, root.id)?;
        }
        self.check_deletable(root.id)?;
        let mut root_draft = Draft::new(self.roots.root_tree_object());
        let index = root_draft.remove_root_ref(dir.root, id, dir.ino, name)?;
        root_draft.put_orphan(id.0);
        let mut draft = Draft::new(&parent.tree);
        draft.remove_from_dir(dir, name, index, FileTime::now())?;
        let mut uuids = uuid_tree.as_ref().map(Draft::new);
        if let Some(uuids) = &mut uuids {
            let item = tree.item();
            uuids.remove_uuid(UuidKind::Own, &item.uuid, id)?;
            uuids.remove_uuid(UuidKind::Received, &item.received_uuid, id)?;
        }
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        // Hold the tree until outside references to its inodes are known.
        tree.acquire().map_err(Error::from)?;
        for draft in [Some(draft), Some(root_draft), uuids].into_iter().flatten() {
            draft.enter(&txn);
        }
        txn.change_root_item(tree, |item| {
            item.refs = 0.into();
            item.flags = (item.flags() | RootItemFlags::DEAD).bits().into();
            item.drop_progress = DiskKey::default();
            item.drop_level = 0;
        });
        self.inodes.transactions()?.cleaner.wake();
        drop(txn);
        drop(locked);
        drop(still);
        self.inodes.pin_inodes_of(tree);
        if tree.release() {
            self.inodes.release_deleted(id);
        }
        Ok(root.id)
    }

    fn remove_empty_subvolume_dir(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let dir = parent.id;
        let reservation = self
            .inodes
            .reserve_metadata(dir.root, EditEstimate::items(4).with_global_reserve())?;
        let _still = lock::lock(self.inodes.rename_lock())?;
        let _state = lock::write(&parent.lock)?;
        if self.namespace.lookup(dir, name)? != Some(FileId::empty_subvolume_dir_in(dir)) {
            return Err(Error::NotFound);
        }
        let index = search_index(&parent.tree.view, dir, name)?.ok_or(Error::NotFound)?;
        let mut draft = Draft::new(&parent.tree);
        draft.remove_from_dir(dir, name, index, FileTime::now())?;
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        draft.enter(&txn);
        Ok(())
    }

    /// Returns the root directory of the subvolume `name` in `dir`.
    fn subvolume_entry(&self, dir: FileId, name: &[u8]) -> Result<FileId> {
        let tree = self.roots.subvolume_tree(dir.root)?;
        let entry = find_entry(&tree.view, dir.ino.0, name)?.ok_or(Error::NotFound)?;
        let child = RootId(entry.location.objectid);
        if entry.location.item_type != KeyType::ROOT_ITEM {
            return Err(Error::NotASubvolume);
        }
        match self.namespace.lookup(dir, name)? {
            Some(root) if !root.is_empty_subvolume_dir() => Ok(root),
            _ => Err(Error::NoSuchSubvolume(child)),
        }
    }

    fn check_deletable(&self, root: FileId) -> Result<()> {
        let id = root.root;
        if self.default_subvolume()? == id {
            return Err(Error::DefaultSubvolume(id));
        }
        let root_tree = self.roots.root_tree();
        let mut cursor = root_tree.cursor();
        let first = Key::new(id.0, KeyType::ROOT_REF, 0);
        if cursor.seek(&first)?
            && let Some((key, _)) = cursor.current()
            && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        {
            return Err(Error::NotEmpty(root));
        }
        Ok(())
    }

    /// Returns the deleted subvolumes whose blocks have not been freed yet.
    pub(crate) fn deleted_subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let mut all = self.subvolumes()?;
        all.retain(|subvolume| subvolume.item.refs.get() == 0);
        Ok(all)
    }
}

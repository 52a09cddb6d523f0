//! Properties of a subvolume (read-only, received UUID) and of the volume (default subvolume, label).

use ubtrfs_device::{ErrorCounts, nonblocking};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{DevId, RootId, Transid, objectid};
use ubtrfs_format::item::{FileTime, RootItemFlags, Timespec};
use ubtrfs_format::superblock::LABEL_SIZE;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{EditEstimate, lock};

use super::Subvolumes;
use super::uuid_tree::UuidKind;
use crate::error::{Error, Result};
use crate::inode::Draft;

#[cfg(test)]
mod tests;

/// The origin of a received subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrom {
    /// UUID of the sent subvolume.
    pub uuid: Uuid,
    /// The last transaction that changed the sent subvolume, and its time.
    pub transid: Transid,
    pub time: FileTime,
}

impl Subvolumes {
    /// Makes a subvolume read-only or writable. Its buffered data is written back first. As in the kernel, a
    /// received subvolume keeps its received UUID when it becomes writable.
    ///
    /// Errors: it would become writable while it is held as a snapshot.
    pub(crate) fn set_read_only(&self, id: RootId, read_only: bool) -> Result<()> {
        if read_only {
            nonblocking::check()?;
            // If this fails, the subvolume stays writable.
            self.files.empty_buffers(Some(id))?;
        }
        let reservation = self.inodes.reserve_metadata(id, EditEstimate::items(1))?;
        let tree = self.roots.subvolume_tree(id)?;
        let txn = self.inodes.join_transaction(reservation)?;
        tree.check_undeleted()?;
        let mut is_kept = false;
        txn.change_root_item(&tree, |item| {
            is_kept = !read_only && tree.is_kept_read_only();
            if !is_kept {
                let mut flags = item.flags();
                flags.set(RootItemFlags::RDONLY, read_only);
                item.flags = flags.bits().into();
            }
        });
        drop(txn);
        if is_kept {
            return Err(Error::HeldSubvolume(id));
        }
        if read_only {
            // Writers may have added data before the flag was set.
            self.files.empty_buffers(Some(id))?;
            self.inodes.write_times()?;
        }
        Ok(())
    }

    /// Sets the origin of a received subvolume. Returns the transaction and time of the change, which are
    /// stored with it. Commits if the volume has no UUID tree.
    pub(crate) fn set_received(
        &self,
        id: RootId,
        from: &ReceivedFrom,
    ) -> Result<(Transid, FileTime)> {
        self.note_received(id, from, Tree::check_writable)
    }

    /// Clears the origin of a received subvolume, even if it is read-only.
    pub(crate) fn forget_received(&self, id: RootId) -> Result<()> {
        let nothing = ReceivedFrom {
            uuid: Uuid::NIL,
            transid: Transid(0),
            time: FileTime::default(),
        };
        self.note_received(id, &nothing, Tree::check_undeleted)?;
        Ok(())
    }

    fn note_received(
        &self,
        id: RootId,
        from: &ReceivedFrom,
        check: impl Fn(&Tree) -> ubtrfs_storage::Result<()>,
    ) -> Result<(Transid, FileTime)> {
        let reservation = self.inodes.reserve_metadata(id, EditEstimate::items(4))?;
        let tree = self.roots.subvolume_tree(id)?;
        let uuid_tree = self.uuid_tree()?;
        let _still = lock::lock(self.inodes.rename_lock())?;
        let old = tree.item().received_uuid;
        let mut uuids = match &uuid_tree {
            Some(tree) => Draft::new(tree),
            None => {
                // A commit creates the UUID tree, so this waits for one.
                nonblocking::check()?;
                self.inodes.transactions()?.check_may_commit()?;
                Draft::for_new_tree(self.roots.root_tree_object())
            }
        };
        if old != from.uuid {
            uuids.remove_uuid(UuidKind::Received, &old, id)?;
            if !from.uuid.is_nil() {
                uuids.add_uuid(UuidKind::Received, &from.uuid, id)?;
            }
        }
        let now = FileTime::now();
        let txn = self.inodes.join_transaction(reservation)?;
        check(&tree)?;
        tree.check_undeleted()?;
        match &uuid_tree {
            Some(_) => uuids.enter(&txn),
            None => txn.make_uuid_tree(uuids.into_puts(&txn)),
        }
        let transid = txn.transid();
        txn.change_root_item(&tree, |item| {
            item.received_uuid = from.uuid;
            item.stransid = from.transid.0.into();
            item.stime = Timespec::from(from.time);
            item.rtransid = transid.0.into();
            item.rtime = Timespec::from(now);
        });
        drop(txn);
        if uuid_tree.is_none() {
            self.inodes.transactions()?.commit_running()?;
        }
        Ok((transid, now))
    }

    /// Sets the default subvolume, which is mounted if none is named.
    pub(crate) fn set_default(&self, id: RootId) -> Result<()> {
        let reservation = self
            .inodes
            .reserve_metadata(RootId::ROOT_TREE, EditEstimate::items(1))?;
        let tree = self.roots.subvolume_tree(id)?;
        let _still = lock::lock(self.inodes.rename_lock())?;
        let mut draft = Draft::new(self.roots.root_tree_object());
        let dir = match self.roots.superblock().root_dir_objectid.get() {
            0 => objectid::ROOT_TREE_DIR,
            dir => dir,
        };
        draft.redirect_entry(dir, b"default", tree.root_key())?;
        let txn = self.inodes.join_transaction(reservation)?;
        tree.check_undeleted()?;
        draft.enter(&txn);
        txn.edit_superblock(|edits| edits.use_feature(Incompat::DEFAULT_SUBVOL));
        Ok(())
    }

    /// Resets the error counts of a device, durably with the next commit. Returns the old counts, or None if
    /// there is no such device.
    pub(crate) fn reset_device_errors(&self, devid: DevId) -> Result<Option<ErrorCounts>> {
        let pool = self.roots.pool();
        if pool.error_counts(devid).is_none() {
            return Ok(None);
        }
        let reservation = self
            .inodes
            .reserve_metadata(RootId::ROOT_TREE, EditEstimate::items(1))?;
        let txn = self.inodes.join_transaction(reservation)?;
        txn.edit_superblock(|edits| edits.device_errors_changed = true);
        Ok(pool.reset_error_counts(devid))
    }

    /// Adds errors to the counts of devices, durably with the next commit. That commit writes all superblocks, even if
    /// nothing is added.
    pub(crate) fn add_device_errors(&self, added: &[(DevId, ErrorCounts)]) -> Result<()> {
        let reservation = self
            .inodes
            .reserve_metadata(RootId::ROOT_TREE, EditEstimate::items(added.len() as u64))?;
        let txn = self.inodes.join_transaction(reservation)?;
        txn.edit_superblock(|edits| edits.device_errors_changed = true);
        for &(devid, counts) in added {
            self.roots.pool().add_errors(devid, counts);
        }
        Ok(())
    }

    /// Sets the label of the volume: at most 255 bytes without a NUL.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() >= LABEL_SIZE || label.contains(&0) {
            return Err(Error::Invalid("label"));
        }
        let mut bytes = [0; LABEL_SIZE];
        bytes[..label.len()].copy_from_slice(label);
        let reservation = self
            .inodes
            .reserve_metadata(RootId::ROOT_TREE, EditEstimate::items(0))?;
        let txn = self.inodes.join_transaction(reservation)?;
        txn.edit_superblock(|edits| edits.label = Some(bytes));
        Ok(())
    }
}

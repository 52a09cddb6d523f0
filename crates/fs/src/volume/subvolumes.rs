//! Subvolumes and snapshots.

use ubtrfs_device::ErrorCounts;
use ubtrfs_format::ids::{DevId, RootId, Transid};
use ubtrfs_format::item::FileTime;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::SubvolumePlace;

use crate::error::{Error, Result};
use crate::namespace::NewInode;
use crate::subvolume::{ReceivedFrom, SubvolumeInfo};

use super::Volume;

impl Volume {
    /// Creates an empty subvolume `name` in `dir`, and commits.
    ///
    /// `root` describes its root directory, whose mode is limited by the default ACL of `dir`. It inherits
    /// the compression of the subvolume that contains `dir`.
    pub fn create_subvolume(
        &self,
        dir: FileId,
        name: &[u8],
        root: &NewInode<'_>,
    ) -> Result<RootId> {
        self.subvolumes.create_subvolume(dir, name, root)
    }

    /// Creates a snapshot of `source` as `name` in `dir`, and commits. It contains all data written before
    /// the call.
    pub fn snapshot(
        &self,
        source: RootId,
        dir: FileId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId> {
        self.subvolumes.snapshot(source, dir, name, read_only)
    }

    /// Deletes the subvolume `name` in `dir` with all its files.
    ///
    /// Later commits free its blocks. Files that are held stay usable, and keep the whole subvolume until
    /// they are released.
    ///
    /// Errors: it is the default subvolume, or contains others; `name` is not a subvolume.
    pub fn delete_subvolume(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.subvolumes.delete_subvolume(dir, name)
    }

    /// Deletes a subvolume unless `check` refuses its root directory, which is returned.
    ///
    /// Both directories are locked during the check, so nothing moves and no attribute changes. `check` must
    /// not lock an inode ([`Volume::stored_attr`], not [`Volume::attr`]).
    ///
    /// Errors: as [`Volume::delete_subvolume`]; the errors of `check`.
    pub fn delete_subvolume_if<E: From<Error>>(
        &self,
        dir: FileId,
        name: &[u8],
        check: impl FnOnce(FileId) -> Result<(), E>,
    ) -> Result<FileId, E> {
        self.subvolumes.delete_subvolume_if(dir, name, check)
    }

    /// Deletes a subvolume by its id, unless `check` refuses its parent directory or its root directory.
    ///
    /// `check` is called as for [`Volume::delete_subvolume_if`]. Returns the former place of the subvolume.
    ///
    /// Errors: as [`Volume::delete_subvolume_if`].
    pub fn delete_subvolume_by_id<E: From<Error>>(
        &self,
        id: RootId,
        check: impl FnMut(FileId, FileId) -> Result<(), E>,
    ) -> Result<SubvolumePlace, E> {
        self.subvolumes.delete_subvolume_by_id(id, check)
    }

    /// Deletes an empty directory or an empty subvolume. Also removes the entry of a nested subvolume that a
    /// snapshot did not copy.
    pub fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.subvolumes.rmdir(dir, name)
    }

    /// Returns the deleted subvolumes whose blocks have not been freed yet.
    pub fn deleted_subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        self.subvolumes.deleted_subvolumes()
    }

    /// Returns all subvolumes by ascending id, including deleted ones. The top level is first.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        self.subvolumes.subvolumes()
    }

    /// Returns the subvolume with this id, or None if [`Volume::subvolumes`] would not list it.
    pub fn subvolume_info(&self, id: RootId) -> Result<Option<SubvolumeInfo>> {
        self.subvolumes.subvolume_info(id)
    }

    /// Returns the subvolumes that have this UUID, or were received from one that has it, by the UUID tree.
    ///
    /// That tree may lack some. Volumes of old kernels lack the tree, and the size of a leaf limits an item.
    pub fn subvolumes_of_uuid(&self, uuid: &Uuid) -> Result<Vec<SubvolumeInfo>> {
        self.subvolumes.subvolumes_of_uuid(uuid)
    }

    /// Returns the subvolumes that were made as snapshots of the one with this UUID, by ascending id.
    pub fn snapshots_of(&self, uuid: &Uuid) -> Result<Vec<RootId>> {
        self.subvolumes.snapshots_of(uuid)
    }

    /// Returns the subvolumes that are right below another, by ascending id, with their places.
    pub fn nested_subvolumes(&self, id: RootId) -> Result<Vec<(RootId, SubvolumePlace)>> {
        self.subvolumes.nested_subvolumes(id)
    }

    /// Returns the path of a subvolume from the top level's root, without a leading slash.
    ///
    /// The path of the top level is empty.
    pub fn subvolume_path(&self, id: RootId) -> Result<Vec<u8>> {
        self.subvolumes.subvolume_path(id)
    }

    /// Returns the parent and the name of a directory.
    pub fn directory_name(&self, dir: FileId) -> Result<(FileId, Vec<u8>)> {
        self.subvolumes.directory_name(dir)
    }

    /// Makes a subvolume read-only or writable. Its buffered data is written back first.
    ///
    /// As in the kernel, a received subvolume keeps its received UUID when it becomes writable.
    pub fn set_read_only(&self, id: RootId, read_only: bool) -> Result<()> {
        self.subvolumes.set_read_only(id, read_only)
    }

    /// Sets the origin of a received subvolume. Returns the transaction and time of the change, which are
    /// stored with it.
    ///
    /// Commits if the volume had no UUID tree.
    ///
    /// Errors: a read-only subvolume.
    pub fn set_received(&self, id: RootId, from: &ReceivedFrom) -> Result<(Transid, FileTime)> {
        self.subvolumes.set_received(id, from)
    }

    /// Clears the origin of a received subvolume, even if it is read-only.
    pub fn forget_received(&self, id: RootId) -> Result<()> {
        self.subvolumes.forget_received(id)
    }

    /// Reports write-back errors of files in a subvolume that no sync has reported.
    ///
    /// Errors: lost data, once for each file; returns the first.
    pub fn check_data_stored(&self, id: RootId) -> Result<()> {
        self.inodes.report_loss_in(id)
    }

    /// Sets the default subvolume, which is mounted if none is named.
    pub fn set_default(&self, id: RootId) -> Result<()> {
        self.subvolumes.set_default(id)
    }

    /// Resets the error counts of a device, durably with the next commit. Returns the old counts, or None if
    /// there is no such device.
    pub fn reset_device_errors(&self, devid: DevId) -> Result<Option<ErrorCounts>> {
        self.subvolumes.reset_device_errors(devid)
    }

    /// Adds errors to the counts of devices, durably with the next commit. That commit writes all copies of the
    /// superblock, even if nothing is added.
    pub fn add_device_errors(&self, added: &[(DevId, ErrorCounts)]) -> Result<()> {
        self.subvolumes.add_device_errors(added)
    }

    /// Sets the label of the volume: at most 255 bytes without a NUL.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.subvolumes.set_label(label)
    }

    /// Returns the default subvolume, which is mounted if none is named.
    pub fn default_subvolume(&self) -> Result<RootId> {
        self.subvolumes.default_subvolume()
    }

    /// Returns the root directory of a subvolume.
    pub fn root_dir(&self, id: RootId) -> Result<FileId> {
        Ok(self.roots.root_dir(id)?)
    }

    /// Returns the place of a subvolume, or None for the top level and for a deleted subvolume.
    pub fn subvolume_place(&self, id: RootId) -> Result<Option<SubvolumePlace>> {
        Ok(self.roots.subvolume_place(id)?)
    }
}

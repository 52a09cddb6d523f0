//! Subvolumes and snapshots.

use ubtrfs_device::ErrorCounts;
use ubtrfs_format::ids::{DevId, RootId, Transid};
use ubtrfs_format::item::FileTime;
use ubtrfs_transaction::FileId;
use ubtrfs_transaction::roots::SubvolumePlace;

use crate::error::{Error, Result};
use crate::namespace::NewInode;
use crate::subvolume::{ReceivedFrom, SubvolumeInfo};

use super::Volume;

impl Volume {
    /// Makes an empty subvolume as `name` in `dir`, and commits.
    ///
    /// `root` describes its root directory. The default ACL of `dir` takes bits of its mode. The root directory takes
    /// over the compression of the subvolume that holds `dir`.
    pub fn create_subvolume(
        &self,
        dir: FileId,
        name: &[u8],
        root: &NewInode<'_>,
    ) -> Result<RootId> {
        self.subvolumes.create_subvolume(dir, name, root)
    }

    /// Makes a snapshot of `source` as `name` in `dir`, and commits. It shows what was written before the call.
    pub fn snapshot(
        &self,
        source: RootId,
        dir: FileId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId> {
        self.subvolumes.snapshot(source, dir, name, read_only)
    }

    /// Deletes the subvolume that stands in `dir` as `name`, with all that is in it.
    ///
    /// Later commits free its blocks. Files of it that are held stay usable, and keep all of it until they are
    /// released.
    ///
    /// Errors: it is the default subvolume, or holds others; `name` is none.
    pub fn delete_subvolume(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.subvolumes.delete_subvolume(dir, name)
    }

    /// Deletes a subvolume unless `check` refuses the root directory that the name leads to. Returns that directory.
    ///
    /// Nothing moves and no attribute changes in between: both directories are locked. So `check` may only ask for what
    /// takes no lock of an inode ([`Volume::stored_attr`], not [`Volume::attr`]).
    ///
    /// Errors: as [`Volume::delete_subvolume`]; those of `check`.
    pub fn delete_subvolume_if<E: From<Error>>(
        &self,
        dir: FileId,
        name: &[u8],
        check: impl FnOnce(FileId) -> Result<(), E>,
    ) -> Result<FileId, E> {
        self.subvolumes.delete_subvolume_if(dir, name, check)
    }

    /// Deletes a subvolume where it stands, unless `check` refuses the directory that holds it or its own.
    ///
    /// `check` is called as for [`Volume::delete_subvolume_if`]. Returns the place of the subvolume.
    ///
    /// Errors: as [`Volume::delete_subvolume_if`].
    pub fn delete_subvolume_by_id<E: From<Error>>(
        &self,
        id: RootId,
        check: impl FnMut(FileId, FileId) -> Result<(), E>,
    ) -> Result<SubvolumePlace, E> {
        self.subvolumes.delete_subvolume_by_id(id, check)
    }

    /// Deletes an empty directory. An empty subvolume is deleted as a whole, and so is the entry of a nested
    /// subvolume that a snapshot did not copy.
    pub fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.subvolumes.rmdir(dir, name)
    }

    /// Returns the subvolumes whose blocks are still to be freed.
    pub fn deleted_subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        self.subvolumes.deleted_subvolumes()
    }

    /// Returns all subvolumes by ascending id, the top level first, those being deleted included.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        self.subvolumes.subvolumes()
    }

    /// Returns one of the subvolumes that [`Volume::subvolumes`] lists; None if there is none of this id.
    pub fn subvolume_info(&self, id: RootId) -> Result<Option<SubvolumeInfo>> {
        self.subvolumes.subvolume_info(id)
    }

    /// Returns the path of a subvolume from the top level's root, without a leading slash.
    ///
    /// It is empty for the top level itself.
    pub fn subvolume_path(&self, id: RootId) -> Result<Vec<u8>> {
        self.subvolumes.subvolume_path(id)
    }

    /// Returns the one name that a directory has, and the directory in which it stands.
    pub fn directory_name(&self, dir: FileId) -> Result<(FileId, Vec<u8>)> {
        self.subvolumes.directory_name(dir)
    }

    /// Makes a subvolume read-only, or writable again. Data that was written to it before is written back.
    ///
    /// As in the kernel, a received subvolume that becomes writable keeps the note of that.
    pub fn set_read_only(&self, id: RootId, read_only: bool) -> Result<()> {
        self.subvolumes.set_read_only(id, read_only)
    }

    /// Notes what a subvolume was received from. Returns the transaction and the time that it noted with it.
    ///
    /// Commits if the volume had no UUID tree.
    ///
    /// Errors: a read-only subvolume.
    pub fn set_received(&self, id: RootId, from: &ReceivedFrom) -> Result<(Transid, FileTime)> {
        self.subvolumes.set_received(id, from)
    }

    /// Forgets what a subvolume was received from, also if it is read-only.
    pub fn forget_received(&self, id: RootId) -> Result<()> {
        self.subvolumes.forget_received(id)
    }

    /// Reports data that was written to files of a subvolume, and that was lost since on its way to the devices.
    ///
    /// Errors: data that was lost, once for each file; the first is returned.
    pub fn check_data_stored(&self, id: RootId) -> Result<()> {
        self.inodes.report_loss_in(id)
    }

    /// Has `id` be mounted if no subvolume is named.
    pub fn set_default(&self, id: RootId) -> Result<()> {
        self.subvolumes.set_default(id)
    }

    /// Sets the error counts of a device to 0, for good with the next commit. Returns the counts as they were; None if
    /// there is no such device.
    pub fn reset_device_errors(&self, devid: DevId) -> Result<Option<ErrorCounts>> {
        self.subvolumes.reset_device_errors(devid)
    }

    /// Gives the volume another label, without a NUL and of at most 255 bytes.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.subvolumes.set_label(label)
    }

    /// Returns the subvolume that is mounted if none is named.
    pub fn default_subvolume(&self) -> Result<RootId> {
        self.subvolumes.default_subvolume()
    }

    /// Returns the root directory of a subvolume.
    pub fn root_dir(&self, id: RootId) -> Result<FileId> {
        Ok(self.roots.root_dir(id)?)
    }

    /// Returns where a subvolume stands; None for the top level and for one that is nowhere.
    pub fn subvolume_place(&self, id: RootId) -> Result<Option<SubvolumePlace>> {
        Ok(self.roots.subvolume_place(id)?)
    }
}

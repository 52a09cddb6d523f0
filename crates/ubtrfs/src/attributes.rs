//! Attributes of files by path: permissions, owners, times, flags, compression, extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ubtrfs_fs::{FileId, SetAttr, XattrMode};

use crate::error::{Caused, Naming, Result};
use crate::file::named_xattrs;
use crate::metadata::{FileFlags, FileTimes};
use crate::read_dir::give;
use crate::subvolume::Subvolume;

/// The file that a path ending with a symbolic link refers to.
#[derive(Clone, Copy)]
enum End {
    /// The target of the link.
    Followed,
    /// The link itself.
    Itself,
}

impl Subvolume {
    /// Sets the permission bits of a file. Links are followed.
    ///
    /// # Errors
    ///
    /// The file does not exist, it is immutable or append-only, or the volume or the subvolume is read-only.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let path = path.as_ref();
        let set = SetAttr {
            mode: Some(permissions.mode()),
            ..SetAttr::default()
        };
        let changed = self.change(self.resolve(path), &set);
        changed.naming("set the permissions of", path)
    }

    /// Sets user and group of a file, and clears its set-user-id bit. Links are followed; `None` leaves an id
    /// unchanged.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`].
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.give(path.as_ref(), End::Followed, uid, gid)
    }

    /// Sets user and group of a file, or of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`].
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.give(path.as_ref(), End::Itself, uid, gid)
    }

    fn give(&self, path: &Path, end: End, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let _entered = self.engine.enter();
        let changed = self.find_end(path, end).and_then(|id| {
            give(&self.engine, id, uid, gid)?;
            Ok(())
        });
        changed.naming("change the owner of", path)
    }

    /// Sets times of a file. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`].
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        let path = path.as_ref();
        let changed = self.change(self.resolve(path), &times.to_change());
        changed.naming("set the times of", path)
    }

    /// Sets times of a file, or of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`].
    pub fn set_times_nofollow(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        let path = path.as_ref();
        let changed = self.change(self.resolve_link(path), &times.to_change());
        changed.naming("set the times of", path)
    }

    fn change(&self, id: Caused<FileId>, set: &SetAttr) -> Caused<()> {
        let _entered = self.engine.enter();
        Ok(self.engine.set_attr(id?, set)?)
    }

    fn find_end(&self, path: &Path, end: End) -> Caused<FileId> {
        match end {
            End::Followed => self.resolve(path),
            End::Itself => self.resolve_link(path),
        }
    }

    /// Sets the flags of `chattr` to exactly these. [`Metadata::flags`](crate::Metadata::flags) returns them.
    ///
    /// # Errors
    ///
    /// The flags combine `compress` with `no_compress` or `no_cow`, or the subvolume is read-only.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: FileFlags) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let set = self
            .resolve(path)
            .and_then(|id| Ok(self.engine.set_inode_flags(id, flags.to_inode())?));
        set.naming("set the flags of", path)
    }

    /// Reads the attribute with this full name, such as `user.note`. Returns `None` if it does not exist. Links are
    /// followed.
    ///
    /// # Errors
    ///
    /// The file does not exist, or the volume cannot be read.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.read_xattr(path.as_ref(), End::Followed, name.as_ref())
    }

    /// Reads an attribute, of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.read_xattr(path.as_ref(), End::Itself, name.as_ref())
    }

    fn read_xattr(&self, path: &Path, end: End, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let value = self
            .find_end(path, end)
            .and_then(|id| Ok(self.engine.xattr(id, name.as_bytes())?));
        value.naming("read an attribute of", path)
    }

    /// Reads all attributes of all namespaces as names and values, in unspecified order. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>> {
        self.read_xattrs(path.as_ref(), End::Followed)
    }

    /// Reads all attributes, of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn symlink_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>> {
        self.read_xattrs(path.as_ref(), End::Itself)
    }

    fn read_xattrs(&self, path: &Path, end: End) -> Result<Vec<(OsString, Vec<u8>)>> {
        let all = self
            .find_end(path, end)
            .and_then(|id| Ok(named_xattrs(self.engine.xattrs(id)?)));
        all.naming("list the attributes of", path)
    }

    /// Sets an attribute. Links are followed.
    ///
    /// An ACL in the kernel's format also changes the permission bits.
    ///
    /// The attribute `btrfs.compression` applies to data written from now on, and to new files of a directory. Its values
    /// are `zlib`, `lzo` and `zstd`, also with a level as in `zstd:3`. With `none` nothing is compressed, regardless of
    /// the options of the volume.
    ///
    /// # Errors
    ///
    /// - the attribute exists, or not, contrary to `mode` (`AlreadyExists`, `NotFound`)
    /// - a namespace that the kernel does not have (`Unsupported`)
    /// - name and value are too large for a leaf together, a little less than the node size (`StorageFull`)
    /// - an invalid ACL or property
    /// - an immutable or append-only file, or a read-only subvolume
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Followed, xattr, mode)
    }

    /// Sets an attribute, of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_xattr`].
    pub fn set_symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Itself, xattr, mode)
    }

    fn write_xattr(
        &self,
        path: &Path,
        end: End,
        (name, value): (&OsStr, &[u8]),
        mode: XattrMode,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let set = self
            .find_end(path, end)
            .and_then(|id| Ok(self.engine.set_xattr(id, name.as_bytes(), value, mode)?));
        set.naming("set an attribute of", path)
    }

    /// Removes an attribute. Links are followed.
    ///
    /// # Errors
    ///
    /// The attribute does not exist (`NotFound`); otherwise as [`Subvolume::set_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.delete_xattr(path.as_ref(), End::Followed, name.as_ref())
    }

    /// Removes an attribute, of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::remove_xattr`].
    pub fn remove_symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<()> {
        self.delete_xattr(path.as_ref(), End::Itself, name.as_ref())
    }

    fn delete_xattr(&self, path: &Path, end: End, name: &OsStr) -> Result<()> {
        let _entered = self.engine.enter();
        let removed = self
            .find_end(path, end)
            .and_then(|id| Ok(self.engine.remove_xattr(id, name.as_bytes())?));
        removed.naming("remove an attribute of", path)
    }
}

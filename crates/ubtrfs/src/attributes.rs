//! Attributes of files by paths: permissions, owners, times, flags, compression, extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ubtrfs_engine::{FileId, SetAttr, XattrMode};

use crate::error::{Caused, Naming, Result};
use crate::file::named_xattrs;
use crate::metadata::{FileFlags, FileTimes};
use crate::read_dir::give;
use crate::subvolume::Subvolume;

const COMPRESSION: &str = "btrfs.compression";

/// Which file a path means that ends with a symbolic link.
#[derive(Clone, Copy)]
enum End {
    /// The one that the link leads to.
    Followed,
    /// The link.
    Itself,
}

impl Subvolume {
    /// Sets the permission bits of a file. Links are followed.
    ///
    /// # Errors
    ///
    /// Nothing is there, the file is immutable or append-only, or the volume or the subvolume is read-only.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let path = path.as_ref();
        let set = SetAttr {
            mode: Some(permissions.mode()),
            ..SetAttr::default()
        };
        let changed = self.change(self.resolve(path), &set);
        changed.naming("set the permissions of", path)
    }

    /// Sets user and group of a file, which lets go of its set-user-id bit. Links are followed; None changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_permissions`].
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.give(path.as_ref(), End::Followed, uid, gid)
    }

    /// Sets user and group of a file; of a link itself.
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

    /// Sets times of a file; of a link itself.
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

    /// Sets the flags of `chattr` to exactly these. [`Metadata::flags`](crate::Metadata::flags) shows them.
    ///
    /// # Errors
    ///
    /// `compress` with `no_compress` or `no_cow`; a read-only subvolume.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: FileFlags) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let set = self
            .resolve(path)
            .and_then(|id| Ok(self.engine.set_inode_flags(id, flags.to_inode())?));
        set.naming("set the flags of", path)
    }

    /// Reads the property `compression` of a file or directory as it was set, such as `zstd:3`; None if it was not.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn compression(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        let value = self.xattr(path, COMPRESSION)?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// Sets the property `compression`, for what is written from now on, and in a directory for what will be made there:
    /// - `zlib`, `lzo` or `zstd`; `zlib` and `zstd` may have a level after a colon
    /// - `none`: no compression, whatever the volume was opened with
    /// - "": the property is forgotten
    ///
    /// # Errors
    ///
    /// Another value; a file that is not copied on write; an immutable file; a read-only subvolume.
    pub fn set_compression(&self, path: impl AsRef<Path>, value: &str) -> Result<()> {
        self.set_xattr(path, COMPRESSION, value)
    }

    /// Reads the attribute of exactly this name, namespace included (`user.note`); None if there is none. Links are followed.
    ///
    /// # Errors
    ///
    /// The file is missing, or the volume cannot be read.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.read_xattr(path.as_ref(), End::Followed, name.as_ref())
    }

    /// Reads an attribute; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn xattr_nofollow(
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

    /// Reads all attributes of all namespaces as names and values, in no order that means anything. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>> {
        self.read_xattrs(path.as_ref(), End::Followed)
    }

    /// Reads all attributes; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::xattr`].
    pub fn xattrs_nofollow(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>> {
        self.read_xattrs(path.as_ref(), End::Itself)
    }

    fn read_xattrs(&self, path: &Path, end: End) -> Result<Vec<(OsString, Vec<u8>)>> {
        let all = self
            .find_end(path, end)
            .and_then(|id| Ok(named_xattrs(self.engine.xattrs(id)?)));
        all.naming("list the attributes of", path)
    }

    /// Sets an attribute, which may be there already. Links are followed.
    ///
    /// An ACL in the kernel's form changes the permission bits with it.
    ///
    /// # Errors
    ///
    /// - a namespace that is none of the kernel's (`Unsupported`)
    /// - name and value are too large for a leaf together, a little less than the node size (`StorageFull`)
    /// - an ACL or a property that is not sound
    /// - an immutable or append-only file, or a read-only subvolume
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Followed, xattr, XattrMode::Any)
    }

    /// Sets an attribute; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_xattr`].
    pub fn set_xattr_nofollow(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Itself, xattr, XattrMode::Any)
    }

    /// Makes an attribute. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_xattr`]; there is one of this name (`AlreadyExists`).
    pub fn create_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Followed, xattr, XattrMode::Create)
    }

    /// Makes an attribute; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::create_xattr`].
    pub fn create_xattr_nofollow(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Itself, xattr, XattrMode::Create)
    }

    /// Replaces an attribute. Links are followed.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_xattr`]; there is none of this name (`NotFound`).
    pub fn replace_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Followed, xattr, XattrMode::Replace)
    }

    /// Replaces an attribute; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::replace_xattr`].
    pub fn replace_xattr_nofollow(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let xattr = (name.as_ref(), value.as_ref());
        self.write_xattr(path.as_ref(), End::Itself, xattr, XattrMode::Replace)
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
    /// There is none of the name (`NotFound`); else as [`Subvolume::set_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.delete_xattr(path.as_ref(), End::Followed, name.as_ref())
    }

    /// Removes an attribute; of a link itself.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::remove_xattr`].
    pub fn remove_xattr_nofollow(
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

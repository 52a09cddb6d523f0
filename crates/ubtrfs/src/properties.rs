//! What files and subvolumes have besides content: extended attributes, flags, compression, the read-only flag, and the
//! label and the default subvolume of the volume. By paths; links are followed.

use std::path::Path;

use ubtrfs_engine::XattrMode;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeFlags, RootItemFlags};

use crate::error::{Naming, Result};
use crate::open::Volume;

const COMPRESSION: &[u8] = b"btrfs.compression";

impl Volume {
    /// The value of the attribute of exactly this name, namespace included (`user.note`); None if there is none.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let value = self.engine.xattr(self.find(path)?, name.as_ref());
        value.naming("read an attribute of", path)
    }

    /// All attributes of all namespaces as (name, value), in no order that means anything.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = path.as_ref();
        let all = self.engine.xattrs(self.find(path)?);
        all.naming("list the attributes of", path)
    }

    /// Sets an attribute: made or replaced, or only one of these, as `mode` says. An ACL in the kernel's form changes
    /// the mode bits with it.
    ///
    /// # Errors
    ///
    /// - it exists already, or does not, against `mode`
    /// - a namespace that is none of the kernel's
    /// - name and value are too large for a leaf together, a little less than the node size
    /// - an ACL or a property that is not sound
    /// - an immutable or append-only file
    /// - a read-only subvolume
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let path = path.as_ref();
        let id = self.find(path)?;
        let (name, value) = (name.as_ref(), value.as_ref());
        let set = self.engine.set_xattr(id, name, value, mode);
        set.naming("set an attribute of", path)
    }

    /// Removes an attribute.
    ///
    /// Errors: there is none of the name ([`std::io::ErrorKind::NotFound`]); else as [`Volume::set_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let removed = self.engine.remove_xattr(self.find(path)?, name.as_ref());
        removed.naming("remove an attribute of", path)
    }

    /// The flags of `chattr`; [`Volume::metadata`] has them as well.
    pub fn flags(&self, path: impl AsRef<Path>) -> Result<InodeFlags> {
        Ok(self.metadata(path)?.flags)
    }

    /// Sets the flags of `chattr` to exactly these: SYNC, IMMUTABLE, APPEND, NODUMP, NOATIME, DIRSYNC, NODATACOW,
    /// COMPRESS and NOCOMPRESS. What is made in a directory inherits the last three. NODATACOW of a file that has content
    /// stays as it is.
    ///
    /// Errors: COMPRESS with NOCOMPRESS or NODATACOW; a flag that is none of these; a read-only subvolume.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: InodeFlags) -> Result<()> {
        let path = path.as_ref();
        let set = self.engine.set_inode_flags(self.find(path)?, flags);
        set.naming("set the flags of", path)
    }

    /// The property `compression` of a file or directory as it was set, such as `zstd:3`; None if it was not.
    pub fn compression(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        let value = self.xattr(path, COMPRESSION)?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// Sets the property `compression`, for what is written from now on, and in a directory for what will be made there:
    /// - `zlib`, `lzo` or `zstd`; `zlib` and `zstd` may have a level after a colon
    /// - `none`: no compression, whatever the volume was opened with
    /// - "": the property is forgotten
    ///
    /// Errors: another value; a file that is not copied on write; an immutable file; a read-only subvolume.
    pub fn set_compression(&self, path: impl AsRef<Path>, value: &str) -> Result<()> {
        self.set_xattr(path, COMPRESSION, value, XattrMode::Any)
    }

    /// Whether the subvolume at `path` is read-only.
    ///
    /// Errors: there is no subvolume at this path.
    pub fn is_read_only(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        let id = self.subvolume_at(path)?;
        let tree = self.engine.subvolume_tree(id);
        let item = tree.naming("open subvolume", path)?.item();
        Ok(item.flags().contains(RootItemFlags::RDONLY))
    }

    /// Makes the subvolume at `path` read-only, with what was written to it before, or writable.
    ///
    /// Errors: there is no subvolume at this path.
    pub fn set_read_only(&self, path: impl AsRef<Path>, read_only: bool) -> Result<()> {
        let path = path.as_ref();
        let id = self.subvolume_at(path)?;
        let set = self.engine.set_read_only(id, read_only);
        set.naming("set the read-only flag of", path)
    }

    /// The subvolume that is mounted if none is named. A [`Volume`] shows the top level all the same.
    pub fn default_subvolume(&self) -> Result<RootId> {
        Ok(self.engine.default_subvolume()?)
    }

    /// Has the subvolume at `path` be mounted if none is named.
    ///
    /// Errors: there is no subvolume at this path.
    pub fn set_default_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let id = self.subvolume_at(path)?;
        let set = self.engine.set_default(id);
        set.naming("make the default subvolume of", path)
    }

    /// The label of the volume as of the last commit; "" if it has none.
    pub fn label(&self) -> Vec<u8> {
        self.engine.superblock().label().to_vec()
    }

    /// Gives the volume another label, which [`Volume::label`] shows once it is committed.
    ///
    /// Errors: more than 255 bytes, or a NUL among them.
    pub fn set_label(&self, label: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.engine.set_label(label.as_ref())?)
    }
}

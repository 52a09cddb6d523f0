//! Extended attributes of an open file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ubtrfs_fs::XattrMode;

use super::File;
use crate::error::{Naming, Result};

/// Converts names of attributes to the types of the library.
pub(crate) fn named_xattrs(all: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(OsString, Vec<u8>)> {
    let named = |(name, value)| (OsString::from_vec(name), value);
    all.into_iter().map(named).collect()
}

/// Extended attributes. The file need not be open for writing, and may have lost its name.
///
/// ```
/// use ubtrfs::{Volume, XattrMode};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let file = volume.root().create_file("/file")?;
/// file.set_xattr("user.note", b"draft", XattrMode::Any)?;
/// assert_eq!(file.xattr("user.note")?.as_deref(), Some(&b"draft"[..]));
/// file.remove_xattr("user.note")?;
/// assert!(file.xattrs()?.is_empty());
/// # Ok(())
/// # }
/// ```
impl File {
    /// Reads the attribute with this full name, such as `user.note`. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The volume cannot be read.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let value = self.engine().xattr(self.id(), name.as_ref().as_bytes());
        value.naming("read an attribute of", self.path())
    }

    /// Reads all attributes of all namespaces as names and values, in unspecified order.
    ///
    /// # Errors
    ///
    /// As [`File::xattr`].
    pub fn xattrs(&self) -> Result<Vec<(OsString, Vec<u8>)>> {
        let all = self.engine().xattrs(self.id()).map(named_xattrs);
        all.naming("list the attributes of", self.path())
    }

    /// Sets an attribute.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::set_xattr`](crate::Subvolume::set_xattr).
    pub fn set_xattr(
        &self,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let _entered = self.engine().enter();
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        let set = self.engine().set_xattr(self.id(), name, value, mode);
        set.naming("set an attribute of", self.path())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    ///
    /// The attribute does not exist (`NotFound`); otherwise as [`File::set_xattr`].
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let _entered = self.engine().enter();
        let name = name.as_ref().as_bytes();
        let removed = self.engine().remove_xattr(self.id(), name);
        removed.naming("remove an attribute of", self.path())
    }
}

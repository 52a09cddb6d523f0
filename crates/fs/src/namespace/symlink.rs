//! Symbolic links: the target is the inode's data, inline.

use ubtrfs_format::item::FileKind;
use ubtrfs_format::limits::MAX_TARGET_BYTES;
use ubtrfs_storage::FileId;

use crate::error::{Error, Result};
use crate::namespace::Namespace;

impl Namespace {
    /// Returns the target of a symbolic link. As in the kernel, it ends before its first NUL.
    pub(crate) fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        let attr = self.inodes.attr(id)?;
        if attr.kind != FileKind::Symlink {
            return Err(Error::NotASymlink(id));
        }
        let mut target = vec![0; attr.size.min(MAX_TARGET_BYTES as u64) as usize];
        let len = self.files.read_data(id, &attr, 0, &mut target)?;
        target.truncate(len);
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            target.truncate(end);
        }
        Ok(target)
    }
}

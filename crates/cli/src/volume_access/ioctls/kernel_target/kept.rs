//! Set-id bits and capabilities, which the kernel clears when a file's owner changes.
//!
//! A stream contains only differences between final states. If only the owner changes, the other attributes
//! must stay.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, RawMode, XattrFlags, lgetxattr, lsetxattr, statat};
use rustix::io::Errno;
use ubtrfs_stream::TargetError;

use super::open_subvolume::{OpenDir, PERMISSIONS, SET_ID, proc_path};

const CAPABILITY: &[u8] = b"security.capability";
/// The largest that the kernel knows has 24 bytes.
const MAX_CAPABILITY_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Kept {
    mode: Option<RawMode>,
    capability: Option<Vec<u8>>,
}

impl Kept {
    pub(super) fn of(dir: &OpenDir, name: &[u8]) -> Result<Kept, TargetError> {
        let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if matches!(kind, FileType::Directory | FileType::Symlink) {
            return Ok(Kept::default());
        }
        let mut value = [0; MAX_CAPABILITY_BYTES];
        let len = match kind {
            FileType::RegularFile => lgetxattr(proc_path(dir, name), CAPABILITY, &mut value),
            _ => Err(Errno::NODATA),
        };
        Ok(Kept {
            mode: (found.st_mode & SET_ID != 0).then_some(found.st_mode & PERMISSIONS),
            capability: len.ok().map(|len| value[..len].to_vec()),
        })
    }

    /// Returns the mode to restore, if any.
    pub(super) fn mode(&self) -> Option<RawMode> {
        self.mode
    }

    pub(super) fn restore_capability(&self, place: &Path) -> Result<(), TargetError> {
        if let Some(value) = &self.capability {
            lsetxattr(place, CAPABILITY, value, XattrFlags::empty()).map_err(io::Error::from)?;
        }
        Ok(())
    }
}

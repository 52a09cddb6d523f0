//! The exclusive open (`O_EXCL`) of a block device, which prevents the kernel from mounting it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::access::Access;
use crate::error::{DeviceError, Holder, in_use, open_error};

/// A volume's claim on a block device.
#[derive(Debug)]
pub struct DeviceClaim {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl DeviceClaim {
    /// Claims a block device for writing. For reading it only checks whether another user has claimed it.
    pub(crate) fn open(
        path: &Path,
        access: Access,
    ) -> Result<(DeviceClaim, Option<Holder>), DeviceError> {
        let (file, holder) = match claim_block(path) {
            Ok(file) => ((access == Access::Write).then_some(file), None),
            Err(DeviceError::InUse { holder, .. }) if access == Access::Read => {
                (None, Some(holder))
            }
            Err(error) => return Err(error),
        };
        let claim = DeviceClaim {
            path: path.to_owned(),
            file: Mutex::new(file),
        };
        Ok((claim, holder))
    }

    /// Releases the claim, so that the kernel can mount the device. Locks stay.
    pub fn release(&self) {
        *self.file.lock() = None;
    }

    /// Claims the block device again after [`DeviceClaim::release`].
    pub fn renew(&self) -> Result<(), DeviceError> {
        *self.file.lock() = Some(claim_block(&self.path)?);
        Ok(())
    }
}

fn claim_block(path: &Path) -> Result<File, DeviceError> {
    Access::Read
        .open(path, OFlags::EXCL)
        .map_err(|error: io::Error| match error.raw_os_error() {
            Some(errno) if errno == Errno::BUSY.raw_os_error() => in_use(path, Holder::Kernel),
            _ => open_error(path)(error),
        })
}

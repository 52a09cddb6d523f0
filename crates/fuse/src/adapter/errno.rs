//! The errno that a failed request is answered with: the engine's, and EIO for a device that fails.

use ubtrfs_device::DeviceError;
use ubtrfs_fs::{Error, SpaceError};
use ubtrfs_fuse_server::request::Errno;

#[cfg(test)]
mod tests;

/// Returns the errno for the caller. The log alone has the details of damage and of failing devices.
pub(super) fn errno(error: Error) -> Errno {
    let errno = if error.is_would_block() {
        Errno::WOULD_BLOCK
    } else if is_of_device(&error) {
        Errno::IO
    } else {
        Errno::from(error.errno())
    };
    // REQ-5
    if matches!(errno, Errno::IO | Errno::UCLEAN) {
        tracing::error!("{error}");
    }
    errno
}

/// Returns whether a device failed. Its own errno would mislead: a full disk below the image is not a full volume.
fn is_of_device(error: &Error) -> bool {
    let (Error::Device(error) | Error::Space(SpaceError::Device(error))) = error else {
        return false;
    };
    matches!(
        error,
        DeviceError::Open { .. }
            | DeviceError::ReadRaw { .. }
            | DeviceError::WriteRaw { .. }
            | DeviceError::Discard { .. }
            | DeviceError::Flush { .. }
            | DeviceError::Read { .. }
            | DeviceError::Missing { .. }
    )
}

//! Errors of damaged content, for which Linux has the errno of a failing device.

use std::error::Error as StdError;
use std::io;

use rustix::io::Errno;
use ubtrfs_device::{DeviceError, ReadFailure, kind_of};
use ubtrfs_format::compress::CodecError;
use ubtrfs_fs::Error as EngineError;

/// Returns the kind of an error with this errno. Damaged content has a kind of its own.
pub(crate) fn kind_of_error(error: &(dyn StdError + 'static), errno: Errno) -> io::ErrorKind {
    if is_damage(error) {
        io::ErrorKind::InvalidData
    } else {
        kind_of(errno)
    }
}

/// Returns the kind of an error of the engine, as [`kind_of_error`].
pub(crate) fn kind_of_engine_error(error: &EngineError) -> io::ErrorKind {
    if is_unreadable(error) {
        io::ErrorKind::InvalidData
    } else {
        kind_of_error(error, error.errno())
    }
}

/// Returns whether a checksum is missing, or a device has no btrfs.
pub(crate) fn is_unreadable(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::CsumMissing { .. } | EngineError::Device(DeviceError::NotBtrfs { .. })
    )
}

/// Returns whether data was read and is damaged, and no device failed, according to the error or its sources.
pub(crate) fn is_damage(error: &(dyn StdError + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(failure) = error.downcast_ref::<ReadFailure>() {
            return failure.is_damage();
        }
        if error.is::<CodecError>() {
            return true;
        }
        at = error.source();
    }
    false
}

//! The errno of an error, for bindings to other languages.
//!
//! Not here: kinds (`kind`), which Rust programs use.

use std::error::Error as StdError;
use std::io;

use rustix::io::Errno;
use ubtrfs_device::DeviceError;
use ubtrfs_engine::rights::Refused;
use ubtrfs_engine::{Error as EngineError, TreeError};
use ubtrfs_stream::{CommandError, CommandFault, ReceiveError, ReceiveFault, TargetError};

use super::cause::Cause;
use super::{Error, Failure};

#[cfg(test)]
mod tests;

impl Error {
    /// Returns the errno of Linux for the same failure, or `EIO` if there is no such errno.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let error = volume.root().read("/missing").unwrap_err();
    /// assert_eq!(error.errno(), 2); // ENOENT
    /// # Ok(())
    /// # }
    /// ```
    pub fn errno(&self) -> i32 {
        let Failure { cause, .. } = &*self.0;
        of_cause(cause).raw_os_error()
    }
}

fn of_cause(cause: &Cause) -> Errno {
    match cause {
        Cause::Named(error) => of_cause(&error.0.cause),
        Cause::NotOpenFor(_) => Errno::BADF,
        Cause::Refused(Refused::Access) => Errno::ACCESS,
        Cause::Receive(ReceiveError {
            cause: ReceiveFault::Command(error),
            ..
        })
        | Cause::Command(error)
            if is_no_access(error) =>
        {
            Errno::ACCESS
        }
        Cause::Engine(error) => of_engine(error).unwrap_or_else(|| of_others(cause)),
        Cause::Host(error) => error
            .raw_os_error()
            .map_or_else(|| of_others(cause), Errno::from_raw_os_error),
        _ => of_others(cause),
    }
}

/// Returns whether a command failed because of modes or ACLs.
fn is_no_access(error: &CommandError) -> bool {
    let CommandFault::Target(error) = &error.fault else {
        return false;
    };
    matches!(error, TargetError::Refused(Refused::Access))
}

/// Returns the errno of an error that shares its kind with others.
fn of_engine(error: &EngineError) -> Option<Errno> {
    match error {
        EngineError::NoXattr => Some(Errno::NODATA),
        EngineError::TooManySymlinks => Some(Errno::LOOP),
        EngineError::NameHashFull | EngineError::UuidItemFull => Some(Errno::OVERFLOW),
        EngineError::NoSuchInode(_) | EngineError::NoSuchSubvolume(_) => Some(Errno::STALE),
        EngineError::Device(DeviceError::NotBtrfs { .. }) => Some(Errno::INVAL),
        // Linux distinguishes damaged structures from unreadable data.
        EngineError::DataRead { .. }
        | EngineError::CsumMissing { .. }
        | EngineError::Decompress { .. }
        | EngineError::Tree(TreeError::Read { .. }) => Some(Errno::IO),
        _ => None,
    }
}

/// Returns the errno of the failed system call, or else of the kind.
fn of_others(cause: &Cause) -> Errno {
    let mut at: Option<&(dyn StdError + 'static)> = Some(cause);
    while let Some(error) = at {
        let host = error.downcast_ref::<io::Error>();
        if let Some(errno) = host.and_then(io::Error::raw_os_error) {
            return Errno::from_raw_os_error(errno);
        }
        at = error.source();
    }
    of_kind(cause.kind())
}

fn of_kind(kind: io::ErrorKind) -> Errno {
    use io::ErrorKind as Kind;
    match kind {
        Kind::NotFound => Errno::NOENT,
        Kind::AlreadyExists => Errno::EXIST,
        Kind::NotADirectory => Errno::NOTDIR,
        Kind::IsADirectory => Errno::ISDIR,
        Kind::DirectoryNotEmpty => Errno::NOTEMPTY,
        Kind::StorageFull => Errno::NOSPC,
        Kind::FileTooLarge => Errno::FBIG,
        Kind::QuotaExceeded => Errno::DQUOT,
        Kind::ReadOnlyFilesystem => Errno::ROFS,
        Kind::PermissionDenied => Errno::PERM,
        Kind::CrossesDevices => Errno::XDEV,
        Kind::ResourceBusy => Errno::BUSY,
        Kind::InvalidData => Errno::UCLEAN,
        Kind::InvalidInput => Errno::INVAL,
        Kind::InvalidFilename => Errno::NAMETOOLONG,
        Kind::TooManyLinks => Errno::MLINK,
        Kind::Unsupported => Errno::OPNOTSUPP,
        Kind::WouldBlock => Errno::AGAIN,
        Kind::Interrupted => Errno::INTR,
        Kind::OutOfMemory => Errno::NOMEM,
        _ => Errno::IO,
    }
}

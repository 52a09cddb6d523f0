//! The errno of errors of the system, and the kind that the standard library has for an errno.
//!
//! Not here: the errno of each error, which is the method `errno` of its type.

use std::io::{self, ErrorKind as Kind};

use rustix::io::Errno;

/// Returns the errno of a failed system call. An error that was made from a kind alone has the errno of that kind.
pub fn errno_of(error: &io::Error) -> Errno {
    if let Some(raw) = error.raw_os_error() {
        return Errno::from_raw_os_error(raw);
    }
    match error.kind() {
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
        Kind::BrokenPipe => Errno::PIPE,
        Kind::TimedOut => Errno::TIMEDOUT,
        Kind::ConnectionReset => Errno::CONNRESET,
        _ => Errno::IO,
    }
}

/// Returns the kind that `std::io` has for an errno, or the nearest one.
pub fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::UCLEAN => Kind::InvalidData,
        // A kernel mount answers ENOENT in a directory that was removed. Servers of mounts alone answer ESTALE.
        Errno::NODATA | Errno::STALE => Kind::NotFound,
        Errno::IO | Errno::OVERFLOW => Kind::Other,
        errno => io::Error::from(errno).kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_back_from_their_errno() {
        for kind in [
            Kind::NotFound,
            Kind::AlreadyExists,
            Kind::NotADirectory,
            Kind::IsADirectory,
            Kind::DirectoryNotEmpty,
            Kind::StorageFull,
            Kind::FileTooLarge,
            Kind::QuotaExceeded,
            Kind::ReadOnlyFilesystem,
            Kind::PermissionDenied,
            Kind::CrossesDevices,
            Kind::ResourceBusy,
            Kind::InvalidData,
            Kind::InvalidInput,
            Kind::InvalidFilename,
            Kind::TooManyLinks,
            Kind::Unsupported,
            Kind::WouldBlock,
            Kind::Interrupted,
            Kind::OutOfMemory,
            Kind::BrokenPipe,
            Kind::TimedOut,
            Kind::ConnectionReset,
            Kind::Other,
        ] {
            assert_eq!(kind_of(errno_of(&kind.into())), kind);
        }
    }

    #[test]
    fn errno_of_the_system_is_kept() {
        let error = io::Error::from(Errno::NOTTY);
        assert_eq!(errno_of(&error), Errno::NOTTY);
    }
}

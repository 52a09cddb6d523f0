//! The errno for each error of the engine, the same as the kernel's btrfs returns.

use ubtrfs_engine::{Error, SpaceError};
use ubtrfs_fuse_server::request::Errno;

/// Returns the errno for the caller. Details of a corruption go to the log only.
pub(super) fn errno(error: Error) -> Errno {
    let errno = match &error {
        error if error.is_would_block() => Errno::WOULD_BLOCK,
        Error::WouldBlock(_) => Errno::WOULD_BLOCK,
        Error::NotFound => Errno::NOENT,
        Error::NotADirectory(_) => Errno::NOTDIR,
        Error::IsADirectory(_) => Errno::ISDIR,
        Error::NotASymlink(_)
        | Error::NotAFile(_)
        | Error::NotASubvolume
        | Error::Invalid(_)
        | Error::Unaligned
        | Error::CsumsDiffer => Errno::INVAL,
        Error::Exists => Errno::EXIST,
        Error::NotEmpty(_) => Errno::NOTEMPTY,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::NameHashFull | Error::UuidItemFull => Errno::OVERFLOW,
        Error::TooManyLinks => Errno::MLINK,
        Error::CrossSubvolume => Errno::XDEV,
        Error::DefaultSubvolume(_)
        | Error::HeldSubvolume(_)
        | Error::NotPermitted(_)
        | Error::WritableSubvolume(_) => Errno::PERM,
        Error::NoXattr => Errno::NODATA,
        Error::XattrNamespace | Error::NoDiscard => Errno::OPNOTSUPP,
        Error::FileTooBig => Errno::FBIG,
        Error::TooManySymlinks => Errno::LOOP,
        // The kernel holds a node whose file or subvolume is gone.
        Error::NoSuchInode(_) | Error::NoSuchSubvolume(_) => Errno::STALE,
        Error::Corrupt { .. }
        | Error::NoSuchTree(_)
        | Error::Ref(_)
        | Error::LogRead(_)
        | Error::LogItem { .. } => Errno::UCLEAN,
        Error::ReadOnly
        | Error::ReadOnlySubvolume(_)
        | Error::Aborted(_)
        | Error::Closed
        | Error::Seed
        | Error::Unwritable(_) => Errno::ROFS,
        Error::Forked => Errno::BUSY,
        Error::NoSpace | Error::XattrTooBig => Errno::NOSPC,
        Error::CommitInGroup => Errno::DQUOT,
        Error::Space(SpaceError::Device(_)) => Errno::IO,
        Error::Space(_) => Errno::NOSPC,
        Error::Device(_)
        | Error::Build(_)
        | Error::NoConvergence(_)
        | Error::CommitPanicked(_)
        | Error::Thread(_)
        | Error::Tree(_)
        | Error::DataRead { .. }
        | Error::DataLost { .. }
        | Error::CsumMissing { .. }
        | Error::Decompress { .. } => Errno::IO,
    };
    // REQ-5
    if matches!(errno, Errno::IO | Errno::UCLEAN) {
        tracing::error!("{error}");
    }
    errno
}

//! The internal causes of errors.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use ubtrfs_assemble::SearchError;
use ubtrfs_check::CheckError;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_device::{DeviceError, Holder, errno_of, kind_of};
use ubtrfs_fs::rights::Refused;
use ubtrfs_fs::{Error as EngineError, OptionError};
use ubtrfs_maintenance::ScrubError;
use ubtrfs_mkfs::{FeatureListError, FillError, MkfsError};
use ubtrfs_stream::{CommandError, DiffError, ReceiveError, ReceiveFault, SendError, StreamError};

use super::Error;
use crate::damage::{is_damage, is_unreadable};
use crate::escaped::Escaped;
use crate::transfer::copy::CopyError;
use crate::transfer::is_final_error;
use crate::transfer::tar::TarError;
use crate::transfer::unpack::UnpackError;

/// The outcome of a part of an operation, which has no path yet.
pub(crate) type Caused<T> = std::result::Result<T, Cause>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// An error of a nested operation, which keeps its own names: they are closer to the cause.
    #[error(transparent)]
    Named(#[from] Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A caller lacks a right.
    #[error(transparent)]
    Refused(Refused),
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    #[error(transparent)]
    Features(#[from] FeatureListError),
    #[error(transparent)]
    Fill(#[from] FillError),
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A scrub, apart from errors of the volume and its devices.
    #[error(transparent)]
    Scrub(ScrubError),
    /// A volume on partitions, md arrays or LVM volumes.
    #[error(transparent)]
    Layers(#[from] SearchError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// A command of a stream, after which the others are still received.
    #[error(transparent)]
    Command(#[from] Box<CommandError>),
    #[error(transparent)]
    Diff(#[from] DiffError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Tar(#[from] TarError),
    /// A file of the host.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// A path that has no name in a directory, such as "/".
    #[error("'{}' names no entry", Escaped::of(.0))]
    NoName(PathBuf),
    /// Source and destination are the same file.
    #[error("they are the same file")]
    SameFile,
    /// A copy of a directory into itself, which would never end.
    #[error("a directory is not copied into itself")]
    IntoItself,
    /// A subvolume, which must be deleted before its parent directory.
    #[error("'{}' is a subvolume", Escaped::of(.0))]
    Subvolume(PathBuf),
    /// The id of a subvolume that does not exist.
    #[error("subvolume {0} does not exist")]
    NoSubvolume(u64),
    /// A directory with several parents, in a damaged volume.
    #[error("directory has more than one name")]
    Elsewhere,
    /// Files of two volumes, where both must belong to one.
    #[error("they are of different volumes")]
    OtherVolume,
    /// Reading a file that is open for writing only, or the reverse.
    #[error("the file is not open for {0}")]
    NotOpenFor(&'static str),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// A file or device that a new volume would overwrite, and a description of its contents.
    #[error("'{}' appears to contain {found}", Escaped::of(path))]
    Occupied { path: PathBuf, found: String },
    /// A zoned device, whose format is not supported.
    #[error("zoned devices are not supported")]
    Zoned,
    /// An option by name.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Options that contradict each other.
    #[error("invalid options: {0}")]
    InvalidOptions(&'static str),
}

impl Cause {
    /// Returns the errno that Linux has for the same failure.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Cause::Named(error) => error.0.cause.errno(),
            Cause::Engine(error) => error.errno(),
            Cause::Refused(refused) => refused.errno(),
            Cause::Mkfs(error) => error.errno(),
            Cause::Fill(error) => error.errno(),
            Cause::Check(error) => error.errno(),
            Cause::Scrub(error) => error.errno(),
            Cause::Layers(error) => error.errno(),
            Cause::Send(error) => error.errno(),
            Cause::Stream(error) => error.errno(),
            Cause::Receive(error) => error.errno(),
            Cause::Command(error) => error.errno(),
            Cause::Diff(error) => error.errno(),
            Cause::Copy(error) => error.errno(),
            Cause::Unpack(error) => error.errno(),
            Cause::Tar(error) => error.errno(),
            Cause::Host(error) => errno_of(error),
            Cause::NoName(_) => Errno::BUSY,
            Cause::Features(_)
            | Cause::Option(_)
            | Cause::SameFile
            | Cause::IntoItself
            | Cause::InvalidOptions(_) => Errno::INVAL,
            Cause::NotOpenFor(_) => Errno::BADF,
            Cause::Cancelled(_) => Errno::INTR,
            Cause::NoSubvolume(_) => Errno::NOENT,
            Cause::Elsewhere => Errno::UCLEAN,
            Cause::Zoned => Errno::OPNOTSUPP,
            Cause::Occupied { .. } => Errno::EXIST,
            Cause::OtherVolume | Cause::Subvolume(_) => Errno::XDEV,
        }
    }

    /// Returns the kind that `std::io` has for the errno. Damaged content, files without btrfs and input that ends
    /// early have kinds of their own, which Linux does not distinguish.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Cause::Named(error) => error.kind(),
            Cause::Host(error) => error.kind(),
            _ if self.is_truncated() => io::ErrorKind::UnexpectedEof,
            _ if self.is_damage() => io::ErrorKind::InvalidData,
            _ => kind_of(self.errno()),
        }
    }

    /// Returns whether a stream or an archive ends early.
    fn is_truncated(&self) -> bool {
        match self {
            Cause::Stream(error) => error.is_truncated(),
            Cause::Receive(error) => {
                matches!(&error.cause, ReceiveFault::Stream(error) if error.is_truncated())
            }
            Cause::Fill(FillError::Archive(error)) => error.is_truncated(),
            Cause::Unpack(error) => error.is_truncated(),
            _ => false,
        }
    }

    /// Returns whether data was read and is damaged or no btrfs, and no device failed.
    fn is_damage(&self) -> bool {
        match self {
            Cause::Engine(error) if is_unreadable(error) => true,
            Cause::Check(CheckError::Open(DeviceError::NotBtrfs { .. })) => true,
            Cause::Layers(SearchError::Unreadable(_)) => true,
            cause => is_damage(cause),
        }
    }

    /// Returns the text of a cause that has only the number of a file or subvolume, for a message that names its path.
    pub(crate) fn text_beside_path(&self) -> Option<&'static str> {
        let Cause::Engine(error) = self else {
            return None;
        };
        match error {
            EngineError::NotEmpty(_) => Some("directory is not empty"),
            EngineError::ReadOnlySubvolume(_) => Some("the subvolume is read-only"),
            EngineError::WritableSubvolume(_) => Some("the subvolume is not read-only"),
            EngineError::HeldSubvolume(_) => {
                Some("the subvolume is in use as a snapshot and stays read-only")
            }
            EngineError::DefaultSubvolume(_) => Some("it is the default subvolume"),
            EngineError::NotPermitted(_) => {
                Some("the flags or the kind of the file forbid the change")
            }
            _ => None,
        }
    }

    /// Returns whether a caller lacks a right.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Cause::Named(error) => error.is_refusal(),
            Cause::Refused(refused) => matches!(refused, Refused::Access | Refused::Permission),
            _ => false,
        }
    }

    /// Returns whether any change of the volume would fail for the same reason.
    pub(crate) fn is_of_volume(&self) -> bool {
        match self {
            Cause::Named(error) => error.is_of_volume(),
            Cause::Engine(error) => is_final_error(error),
            Cause::Copy(error) => error.is_of_volume(),
            Cause::Unpack(error) => ends_unpacking(error),
            _ => false,
        }
    }

    /// Returns whether a stream is at fault, and not the volume.
    pub(crate) fn is_of_stream(&self) -> bool {
        match self {
            Cause::Named(error) => error.is_of_stream(),
            Cause::Send(error) => matches!(error, SendError::Write(_)),
            Cause::Receive(error) => matches!(error.cause, ReceiveFault::Stream(_)),
            Cause::Stream(_) => true,
            Cause::Tar(error) => matches!(error, TarError::Write(_)),
            _ => false,
        }
    }

    /// Returns the offset in the stream of the command that was not received.
    pub(crate) fn stream_offset(&self) -> Option<u64> {
        match self {
            Cause::Named(error) => error.stream_offset(),
            Cause::Stream(error) => Some(error.offset),
            Cause::Command(error) => Some(error.offset),
            Cause::Receive(error) => match &error.cause {
                ReceiveFault::Stream(error) => Some(error.offset),
                ReceiveFault::Command(error) => Some(error.offset),
                ReceiveFault::Commands(_) | ReceiveFault::Cancelled(_) => None,
            },
            _ => None,
        }
    }

    /// Returns the device in use, and its user.
    pub(crate) fn holder(&self) -> Option<(&Path, &Holder)> {
        let error = match self {
            Cause::Named(error) => return error.holder(),
            Cause::Engine(EngineError::Device(error)) | Cause::Check(CheckError::Open(error)) => {
                error
            }
            _ => return None,
        };
        match error {
            DeviceError::InUse { path, holder } => Some((path, holder)),
            _ => None,
        }
    }

    /// Returns the subvolume that was left writable.
    pub(crate) fn unfinished(&self) -> Option<&Path> {
        match self {
            Cause::Named(error) => error.unfinished(),
            Cause::Receive(error) => {
                let name = error.unfinished.as_deref();
                name.map(|name| Path::new(OsStr::from_bytes(name)))
            }
            _ => None,
        }
    }
}

fn ends_unpacking(error: &UnpackError) -> bool {
    match error {
        UnpackError::At { source, .. } => ends_unpacking(source),
        UnpackError::Copy(error) => error.is_of_volume(),
        _ => false,
    }
}

impl From<Refused> for Cause {
    fn from(refused: Refused) -> Cause {
        match refused {
            Refused::Volume(error) => Cause::Engine(error),
            refused => Cause::Refused(refused),
        }
    }
}

impl From<ScrubError> for Cause {
    fn from(error: ScrubError) -> Cause {
        match error {
            ScrubError::Device(error) => error.into(),
            ScrubError::Engine(error) => Cause::Engine(error),
            other => Cause::Scrub(other),
        }
    }
}

impl From<DeviceError> for Cause {
    fn from(error: DeviceError) -> Cause {
        Cause::Engine(error.into())
    }
}

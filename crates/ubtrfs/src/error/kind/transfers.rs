//! Error kinds of operations on whole volumes and trees: filling, checking, copying, archives, streams.

use std::io::ErrorKind as Kind;

use ubtrfs_check::CheckError;
use ubtrfs_format::limits::LimitError;
use ubtrfs_mkfs::{ArchiveError, FillError};
use ubtrfs_stream::{
    CommandError, CommandFault, DiffError, Fault, ReceiveError, ReceiveFault, SendError,
    StreamError, TargetError, WriteError,
};

use super::{device_kind, engine_kind, mkfs_kind, refused_kind, tree_kind};
use crate::transfer::copy::{CopyError, DestError};
use crate::transfer::tar::TarError;
use crate::transfer::unpack::UnpackError;

pub(super) fn fill_kind(error: &FillError) -> Kind {
    match error {
        FillError::Mkfs(error) => mkfs_kind(error),
        FillError::Read { source, .. } => source.kind(),
        FillError::Shrank { .. } | FillError::Replaced { .. } => Kind::ResourceBusy,
        FillError::NotADirectory { .. } => Kind::NotADirectory,
        FillError::NotFound { .. } => Kind::NotFound,
        FillError::NoSpace { .. } => Kind::StorageFull,
        FillError::Limit { limit, .. } => limit_kind(*limit),
        FillError::TooManyLinks { .. } => Kind::TooManyLinks,
        FillError::IsTarget { .. } | FillError::XattrsCollide { .. } | FillError::Parity { .. } => {
            Kind::InvalidInput
        }
        FillError::Codec(_) => Kind::Other,
        FillError::Archive(error) => archive_kind(error),
    }
}

fn limit_kind(limit: LimitError) -> Kind {
    match limit {
        LimitError::NameTooLong { .. } | LimitError::TargetTooLong { .. } => Kind::InvalidFilename,
        LimitError::FileTooLarge { .. } => Kind::FileTooLarge,
        LimitError::TooManyLinks { .. } => Kind::TooManyLinks,
        _ => Kind::InvalidInput,
    }
}

fn archive_kind(error: &ArchiveError) -> Kind {
    match error {
        ArchiveError::Read { source, .. } => source.kind(),
        ArchiveError::Truncated { .. } => Kind::UnexpectedEof,
        ArchiveError::NoHeader { .. }
        | ArchiveError::Number { .. }
        | ArchiveError::Pax { .. }
        | ArchiveError::SparseMap { .. }
        | ArchiveError::TooManyParts { .. }
        | ArchiveError::TooLong { .. }
        | ArchiveError::Outside { .. }
        | ArchiveError::Name { .. }
        | ArchiveError::NotADirectory { .. }
        | ArchiveError::ReplacesDirectory { .. }
        | ArchiveError::LinkTarget { .. }
        | ArchiveError::TooMany { .. } => Kind::InvalidData,
        ArchiveError::MultiVolume { .. } => Kind::Unsupported,
    }
}

pub(super) fn check_kind(error: &CheckError) -> Kind {
    match error {
        CheckError::Open(error) => device_kind(error),
        CheckError::SuperblockCopy { .. }
        | CheckError::NoBackupRoot
        | CheckError::NoTreeRoot { .. } => Kind::InvalidData,
        CheckError::NoSuperblockCopy { .. } => Kind::NotFound,
        CheckError::Cancelled => Kind::Interrupted,
        CheckError::Thread(error) | CheckError::Spill(error) => error.kind(),
    }
}

pub(super) fn send_kind(error: &SendError) -> Kind {
    match error {
        SendError::Engine(error) => engine_kind(error),
        SendError::Write(error) => write_kind(error),
        SendError::Spill(error) => error.kind(),
        SendError::Thread => Kind::Other,
        SendError::Nameless(_) | SendError::CompressedNeedsVersion2 => Kind::InvalidInput,
        SendError::OtherVolume(..) => Kind::CrossesDevices,
        SendError::Corrupt { .. } => Kind::InvalidData,
    }
}

fn write_kind(error: &WriteError) -> Kind {
    match error {
        WriteError::Write(error) => error.kind(),
        _ => Kind::InvalidData,
    }
}

pub(super) fn stream_kind(error: &StreamError) -> Kind {
    match &error.fault {
        Fault::Read(error) => error.kind(),
        Fault::Empty | Fault::ShortRead { .. } | Fault::UnexpectedEnd => Kind::UnexpectedEof,
        Fault::Version(_) | Fault::NewerCommand(_) | Fault::NewerAttribute(_) => Kind::Unsupported,
        _ => Kind::InvalidData,
    }
}

pub(super) fn receive_kind(error: &ReceiveError) -> Kind {
    match &error.cause {
        ReceiveFault::Stream(error) => stream_kind(error),
        ReceiveFault::Command(error) => command_kind(error),
        ReceiveFault::Commands(_) => Kind::Other,
        ReceiveFault::Cancelled => Kind::Interrupted,
    }
}

pub(super) fn command_kind(error: &CommandError) -> Kind {
    match &error.fault {
        CommandFault::Target(error) => target_kind(error),
        _ => Kind::InvalidData,
    }
}

fn target_kind(error: &TargetError) -> Kind {
    match error {
        TargetError::Engine(error) => engine_kind(error),
        TargetError::Refused(refused) => refused_kind(refused),
        TargetError::Io(error) => error.kind(),
        TargetError::NoParent(_) | TargetError::NoCloneSource(_) | TargetError::Unreachable(_) => {
            Kind::NotFound
        }
        TargetError::Modified { .. } => Kind::PermissionDenied,
        TargetError::OtherSubvolume => Kind::CrossesDevices,
        TargetError::FallocateMode(_) => Kind::Unsupported,
    }
}

pub(super) fn diff_kind(error: &DiffError) -> Kind {
    match error {
        DiffError::OtherVolume => Kind::CrossesDevices,
        DiffError::Engine(error) => engine_kind(error),
        DiffError::Tree(error) => tree_kind(error),
        DiffError::Corrupt { .. } | DiffError::Path { .. } | DiffError::TooManyNames { .. } => {
            Kind::InvalidData
        }
        DiffError::Spill(error) => error.kind(),
    }
}

pub(super) fn copy_kind(error: &CopyError) -> Kind {
    match error {
        CopyError::Engine(error) | CopyError::Make(error) | CopyError::NothingRead(error) => {
            engine_kind(error)
        }
        CopyError::Keep { source, .. } => engine_kind(source),
        CopyError::At { source, .. } => copy_kind(source),
        CopyError::Write(error) | CopyError::Host { source: error, .. } => error.kind(),
        CopyError::Dest(error) => dest_kind(error),
        CopyError::Metadata(error) => error.kind(),
        CopyError::Walk(_) | CopyError::GaveUp(_) => Kind::InvalidData,
        CopyError::CannotShare | CopyError::UnknownKind => Kind::Unsupported,
        CopyError::SameFile | CopyError::Image => Kind::InvalidInput,
        CopyError::Limit(limit) => limit_kind(*limit),
        CopyError::Cancelled => Kind::Interrupted,
    }
}

fn dest_kind(error: &DestError) -> Kind {
    match error {
        DestError::Name => Kind::InvalidFilename,
        DestError::ReplacesDirectory => Kind::IsADirectory,
        DestError::ReplacesImage => Kind::InvalidInput,
        DestError::ReplacesVolume(error) => device_kind(error),
        DestError::ReplacedByDirectory => Kind::NotADirectory,
        DestError::Call { source, .. } => source.kind(),
    }
}

pub(super) fn unpack_kind(error: &UnpackError) -> Kind {
    match error {
        UnpackError::At { source, .. } => unpack_kind(source),
        UnpackError::Archive(error) | UnpackError::Ended { source: error, .. } => {
            archive_kind(error)
        }
        UnpackError::Limit(limit) => limit_kind(*limit),
        UnpackError::Copy(error) => copy_kind(error),
        UnpackError::Outside | UnpackError::Root | UnpackError::Acl => Kind::InvalidData,
        UnpackError::NoTarget(_) => Kind::NotFound,
        UnpackError::ReplacesFullDirectory => Kind::DirectoryNotEmpty,
        UnpackError::Times { source, .. } => engine_kind(source),
        UnpackError::Cancelled => Kind::Interrupted,
    }
}

pub(super) fn tar_kind(error: &TarError) -> Kind {
    match error {
        TarError::Engine(error) => engine_kind(error),
        TarError::Write(error) => error.kind(),
        TarError::Cancelled => Kind::Interrupted,
    }
}

//! The kinds of errors: as `std::fs` reports the same failure, or the nearest one.
//!
//! Not here: the message of an error (`error`), the causes (`cause`).

use std::io;

use ubtrfs_device::{AttemptProblem, DeviceError, ReadFailure};
use ubtrfs_engine::Error as EngineError;
use ubtrfs_engine::rights::Refused;
use ubtrfs_engine::{SpaceError, TreeError};
use ubtrfs_mkfs::MkfsError;

use super::cause::Cause;

mod transfers;

impl Cause {
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Cause::Named(error) => error.kind(),
            Cause::Host(source) => source.kind(),
            Cause::NoName(_) => io::ErrorKind::ResourceBusy,
            Cause::SameFile | Cause::IntoItself | Cause::InvalidOptions(_) | Cause::Features(_) => {
                io::ErrorKind::InvalidInput
            }
            Cause::NotOpenFor(_) => bad_descriptor(),
            Cause::Cancelled => io::ErrorKind::Interrupted,
            Cause::NoSubvolume(_) => io::ErrorKind::NotFound,
            Cause::Elsewhere => io::ErrorKind::InvalidData,
            Cause::Zoned(_) => io::ErrorKind::Unsupported,
            Cause::Occupied { .. } => io::ErrorKind::AlreadyExists,
            Cause::OtherVolume | Cause::Subvolume(_) => io::ErrorKind::CrossesDevices,
            Cause::Mkfs(error) => mkfs_kind(error),
            Cause::Engine(error) => engine_kind(error),
            Cause::Refused(refused) => refused_kind(refused),
            Cause::Fill(error) => transfers::fill_kind(error),
            Cause::Check(error) => transfers::check_kind(error),
            Cause::Send(error) => transfers::send_kind(error),
            Cause::Stream(error) => transfers::stream_kind(error),
            Cause::Receive(error) => transfers::receive_kind(error),
            Cause::Command(error) => transfers::command_kind(error),
            Cause::Diff(error) => transfers::diff_kind(error),
            Cause::Copy(error) => transfers::copy_kind(error),
            Cause::Unpack(error) => transfers::unpack_kind(error),
            Cause::Tar(error) => transfers::tar_kind(error),
        }
    }
}

/// Returns the kind of EBADF, which `std` does not name publicly.
fn bad_descriptor() -> io::ErrorKind {
    io::Error::from(rustix::io::Errno::BADF).kind()
}

// The matches below have no wildcard arm: the kind of a new error must be chosen.

fn refused_kind(refused: &Refused) -> io::ErrorKind {
    match refused {
        Refused::Access | Refused::Permission => io::ErrorKind::PermissionDenied,
        Refused::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
        Refused::Volume(error) => engine_kind(error),
    }
}

fn engine_kind(error: &EngineError) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match error {
        EngineError::WouldBlock(_) => Kind::WouldBlock,
        EngineError::Device(error) => device_kind(error),
        EngineError::Tree(error) => tree_kind(error),
        EngineError::Space(error) => space_kind(error),
        EngineError::Thread(source) => source.kind(),
        EngineError::DataRead { source, .. } => read_kind(source),
        EngineError::LogRead(source) | EngineError::LogItem { source, .. } => engine_kind(source),
        EngineError::NotFound
        | EngineError::NoSuchInode(_)
        | EngineError::NoSuchSubvolume(_)
        | EngineError::NoXattr => Kind::NotFound,
        EngineError::Exists => Kind::AlreadyExists,
        EngineError::NotEmpty(_) => Kind::DirectoryNotEmpty,
        EngineError::NotADirectory(_) => Kind::NotADirectory,
        EngineError::IsADirectory(_) => Kind::IsADirectory,
        EngineError::NoSpace | EngineError::XattrTooBig => Kind::StorageFull,
        EngineError::Forked => Kind::ResourceBusy,
        EngineError::FileTooBig => Kind::FileTooLarge,
        EngineError::CommitInGroup | EngineError::UuidItemFull => Kind::QuotaExceeded,
        EngineError::ReadOnly
        | EngineError::ReadOnlySubvolume(_)
        | EngineError::Aborted(_)
        | EngineError::Closed
        | EngineError::Unwritable(_)
        | EngineError::Seed => Kind::ReadOnlyFilesystem,
        EngineError::NotPermitted(_)
        | EngineError::DefaultSubvolume(_)
        | EngineError::HeldSubvolume(_)
        | EngineError::WritableSubvolume(_) => Kind::PermissionDenied,
        EngineError::CrossSubvolume => Kind::CrossesDevices,
        EngineError::NameTooLong | EngineError::NameHashFull => Kind::InvalidFilename,
        EngineError::TooManyLinks => Kind::TooManyLinks,
        EngineError::TooManySymlinks => symlink_loop(),
        EngineError::Invalid(_)
        | EngineError::Unaligned
        | EngineError::CsumsDiffer
        | EngineError::NotASymlink(_)
        | EngineError::NotAFile(_)
        | EngineError::NotASubvolume => Kind::InvalidInput,
        EngineError::XattrNamespace | EngineError::NoDiscard => Kind::Unsupported,
        EngineError::Ref(_)
        | EngineError::NoSuchTree(_)
        | EngineError::Corrupt { .. }
        | EngineError::CsumMissing { .. }
        | EngineError::Decompress { .. } => Kind::InvalidData,
        EngineError::Build(_)
        | EngineError::DataLost { .. }
        | EngineError::NoConvergence(_)
        | EngineError::CommitPanicked(_) => Kind::Other,
    }
}

/// Returns the kind of ELOOP, whose name in `std` is not stable yet.
fn symlink_loop() -> io::ErrorKind {
    io::Error::from(rustix::io::Errno::LOOP).kind()
}

fn device_kind(error: &DeviceError) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match error {
        DeviceError::WouldBlock(_) => Kind::WouldBlock,
        DeviceError::Open { source, .. }
        | DeviceError::ReadRaw { source, .. }
        | DeviceError::WriteRaw { source, .. }
        | DeviceError::Discard { source, .. }
        | DeviceError::Flush { source, .. }
        | DeviceError::Read { source, .. } => source.kind(),
        DeviceError::InUse { .. }
        | DeviceError::HoldsVolume { .. }
        | DeviceError::Changed { .. } => Kind::ResourceBusy,
        DeviceError::Missing { .. } => Kind::NotFound,
        DeviceError::NoDevice
        | DeviceError::Kind { .. }
        | DeviceError::OtherVolume { .. }
        | DeviceError::Ambiguous { .. }
        | DeviceError::DuplicateDevice { .. } => Kind::InvalidInput,
        DeviceError::NotBtrfs { .. }
        | DeviceError::Incomplete { .. }
        | DeviceError::Superblock { .. }
        | DeviceError::FirstSuperblock { .. }
        | DeviceError::Truncated { .. }
        | DeviceError::Chunk { .. }
        | DeviceError::NoChunk { .. }
        | DeviceError::NoMirror { .. }
        | DeviceError::Rebuild { .. } => Kind::InvalidData,
        DeviceError::Unsupported { .. } => Kind::Unsupported,
        DeviceError::Unwritable { .. }
        | DeviceError::Foreign { .. }
        | DeviceError::TotalBytes { .. }
        | DeviceError::DeviceFsid { .. }
        | DeviceError::ParityWrite { .. }
        | DeviceError::NoCopy { .. } => Kind::ReadOnlyFilesystem,
    }
}

fn tree_kind(error: &TreeError) -> io::ErrorKind {
    match error {
        TreeError::WouldBlock(_) => io::ErrorKind::WouldBlock,
        TreeError::Read { source, .. } => read_kind(source),
        TreeError::Corrupt { .. }
        | TreeError::Unexpected { .. }
        | TreeError::KeyBound { .. }
        | TreeError::Misaligned { .. }
        | TreeError::Level { .. } => io::ErrorKind::InvalidData,
        TreeError::Unwritable { .. } => io::ErrorKind::Other,
    }
}

/// Returns the kind for an unreadable mirror in preference to one that was read and is damaged.
fn read_kind(failure: &ReadFailure) -> io::ErrorKind {
    let kinds = failure.attempts.iter().map(|attempt| &attempt.problem);
    let mut kinds = kinds.filter_map(|problem| match problem {
        AttemptProblem::Device(error) => Some(device_kind(error)),
        AttemptProblem::Content => None,
    });
    kinds.next().unwrap_or(io::ErrorKind::InvalidData)
}

fn space_kind(error: &SpaceError) -> io::ErrorKind {
    match error {
        SpaceError::NoSpace { .. }
        | SpaceError::ReadOnlyProfile { .. }
        | SpaceError::SystemChunkArray => io::ErrorKind::StorageFull,
        SpaceError::NoBlockGroup { .. } => io::ErrorKind::InvalidInput,
        SpaceError::InUse { .. } => io::ErrorKind::ResourceBusy,
        SpaceError::Device(error) => device_kind(error),
    }
}

fn mkfs_kind(error: &MkfsError) -> io::ErrorKind {
    match error {
        MkfsError::Write { source, .. }
        | MkfsError::Read { source, .. }
        | MkfsError::Flush { source, .. }
        | MkfsError::Resize { source, .. }
        | MkfsError::Scratch(source) => source.kind(),
        MkfsError::TooLarge => io::ErrorKind::FileTooLarge,
        MkfsError::DeviceTooSmall { .. }
        | MkfsError::NoRoomForChunk { .. }
        | MkfsError::NoRoomForBlock { .. } => io::ErrorKind::StorageFull,
        MkfsError::Cancelled => io::ErrorKind::Interrupted,
        MkfsError::NotSettled { .. } | MkfsError::Chunk(_) | MkfsError::Build(_) => {
            io::ErrorKind::Other
        }
        MkfsError::LabelTooLong { .. }
        | MkfsError::LabelNul
        | MkfsError::SectorsizeRange(_)
        | MkfsError::SectorsizePower(_)
        | MkfsError::NodesizeSmall { .. }
        | MkfsError::NodesizeLarge(_)
        | MkfsError::NodesizeUnaligned { .. }
        | MkfsError::NodesizePower(_)
        | MkfsError::NodesizeMixed { .. }
        | MkfsError::MixedProfiles
        | MkfsError::BlockGroupTreeNeeds
        | MkfsError::TooFewDevices { .. }
        | MkfsError::DeviceUuids { .. }
        | MkfsError::DeviceCount { .. }
        | MkfsError::DeviceShrank { .. } => io::ErrorKind::InvalidInput,
    }
}

//! The errno and the kind of every variant of every error that a cause wraps: the answers of a mount and of the library.
//!
//! A row is a variant, an example of it, its errno and its kind. A table without a row for a variant does not compile.

use std::io;

use io::ErrorKind as Kind;
use rustix::io::Errno;
use ubtrfs_assemble::SearchError;
use ubtrfs_check::CheckError;
use ubtrfs_device::nonblocking::WouldBlock;
use ubtrfs_device::progress::Cancelled;
use ubtrfs_device::{
    AttemptProblem, ChunkProblem, DeviceError, DeviceName, Holder, UnsupportedScheme,
};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::compress::CodecError;
use ubtrfs_format::ids::{InodeNr, Physical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::limits::LimitError;
use ubtrfs_format::maker::Marks;
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::rights::Refused;
use ubtrfs_fs::{
    BlockGroupType, BuildError, CorruptItem, DeviceSetError, Error as EngineError, ExtentShape,
    RefError, RefKey, SpaceError, TreeError,
};
use ubtrfs_maintenance::ScrubError;
use ubtrfs_mkfs::{ArchiveError, FillError, MkfsError};
use ubtrfs_stream::{
    Attribute, CommandError, CommandFault, CommandKind, CorruptFile, DiffError, Fault,
    ReceiveError, ReceiveFault, SendError, StreamError, TargetError, WriteError,
};

use super::{AT, DEVICE, FILE, TREE, block, broken, path, unread};
use crate::error::{Cause, Error, Naming};
use crate::transfer::copy::{CopyError, DestError};
use crate::transfer::tar::TarError;
use crate::transfer::unpack::UnpackError;

/// Defines a test of all variants of an enum. Variants after `nested` wrap errors that are tested elsewhere.
macro_rules! answers {
    ($test:ident, $error:ident, $cause:expr, {
        $($variant:ident: $example:expr => $errno:ident, $kind:expr;)*
    } $(nested $($nested:ident),+)?) => {
        #[test]
        fn $test() {
            let _every_variant = |error: &$error| match error {
                $($error::$variant { .. } => {})*
                $($($error::$nested { .. } => {})+)?
            };
            let mut differ = Vec::new();
            $({
                let cause: Cause = $cause($example);
                let error = Err::<(), _>(cause).naming("read", &path()).unwrap_err();
                let answers = (error.errno(), error.kind());
                let wanted = (Errno::$errno.raw_os_error(), $kind);
                if answers != wanted {
                    differ.push((stringify!($variant), answers));
                }
            })*
            assert!(differ.is_empty(), "{differ:#?}");
        }
    };
}

fn scheme() -> UnsupportedScheme {
    DeviceName::from("nbd://host/export").path().unwrap_err()
}

fn looped() -> Kind {
    io::Error::from(Errno::LOOP).kind()
}

fn full() -> Box<EngineError> {
    Box::new(EngineError::NoSpace)
}

fn stream(fault: Fault) -> StreamError {
    StreamError {
        offset: 0,
        command: None,
        fault,
    }
}

fn command(fault: CommandFault) -> Cause {
    Cause::Command(Box::new(CommandError {
        command: CommandKind::Mkdir,
        offset: 0,
        path: None,
        fault,
    }))
}

fn receive(cause: ReceiveFault) -> Cause {
    let unfinished = None;
    ReceiveError { cause, unfinished }.into()
}

const SHAPE: ExtentShape = ExtentShape::Block { level: 0 };
const REFERENCE: RefKey = RefKey::TreeRoot(RootId::FS_TREE);

answers!(engine, EngineError, Cause::Engine, {
    WouldBlock: WouldBlock.into() => AGAIN, Kind::WouldBlock;
    Build: BuildError::KeyOrder { last: Key::MIN, key: Key::MIN }.into() => IO, Kind::Other;
    NotFound: EngineError::NotFound => NOENT, Kind::NotFound;
    ReadOnly: EngineError::ReadOnly => ROFS, Kind::ReadOnlyFilesystem;
    Aborted: EngineError::Aborted(String::new()) => ROFS, Kind::ReadOnlyFilesystem;
    Closed: EngineError::Closed => ROFS, Kind::ReadOnlyFilesystem;
    Cancelled: EngineError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
    Forked: EngineError::Forked => BUSY, Kind::ResourceBusy;
    Unwritable: EngineError::Unwritable(String::new()) => ROFS, Kind::ReadOnlyFilesystem;
    Marked: EngineError::Marked(Marks::NONE) => ROFS, Kind::ReadOnlyFilesystem;
    LogRead: EngineError::LogRead(full()) => NOSPC, Kind::StorageFull;
    LogItem: EngineError::LogItem { subvolume: TREE, block: AT, key: Key::MIN, source: full() } => NOSPC, Kind::StorageFull;
    Seed: EngineError::Seed => ROFS, Kind::ReadOnlyFilesystem;
    NoDiscard: EngineError::NoDiscard => OPNOTSUPP, Kind::Unsupported;
    NoSpace: EngineError::NoSpace => NOSPC, Kind::StorageFull;
    FileTooBig: EngineError::FileTooBig => FBIG, Kind::FileTooLarge;
    Unaligned: EngineError::Unaligned => INVAL, Kind::InvalidInput;
    CsumsDiffer: EngineError::CsumsDiffer => INVAL, Kind::InvalidInput;
    DataLost: EngineError::DataLost { file: FILE, reason: String::new() } => IO, Kind::Other;
    CommitInGroup: EngineError::CommitInGroup => DQUOT, Kind::QuotaExceeded;
    NoConvergence: EngineError::NoConvergence(9) => IO, Kind::Other;
    CommitPanicked: EngineError::CommitPanicked(String::new()) => IO, Kind::Other;
    Thread: EngineError::Thread(broken()) => PIPE, Kind::BrokenPipe;
    NotADirectory: EngineError::NotADirectory(FILE) => NOTDIR, Kind::NotADirectory;
    IsADirectory: EngineError::IsADirectory(FILE) => ISDIR, Kind::IsADirectory;
    NotASymlink: EngineError::NotASymlink(FILE) => INVAL, Kind::InvalidInput;
    NotAFile: EngineError::NotAFile(FILE) => INVAL, Kind::InvalidInput;
    Exists: EngineError::Exists => EXIST, Kind::AlreadyExists;
    NotEmpty: EngineError::NotEmpty(FILE) => NOTEMPTY, Kind::DirectoryNotEmpty;
    NameTooLong: EngineError::NameTooLong => NAMETOOLONG, Kind::InvalidFilename;
    NameHashFull: EngineError::NameHashFull => OVERFLOW, Kind::Other;
    UuidItemFull: EngineError::UuidItemFull => OVERFLOW, Kind::Other;
    TooManyLinks: EngineError::TooManyLinks => MLINK, Kind::TooManyLinks;
    CrossSubvolume: EngineError::CrossSubvolume => XDEV, Kind::CrossesDevices;
    NotASubvolume: EngineError::NotASubvolume => INVAL, Kind::InvalidInput;
    ReadOnlySubvolume: EngineError::ReadOnlySubvolume(TREE) => ROFS, Kind::ReadOnlyFilesystem;
    WritableSubvolume: EngineError::WritableSubvolume(TREE) => PERM, Kind::PermissionDenied;
    HeldSubvolume: EngineError::HeldSubvolume(TREE) => PERM, Kind::PermissionDenied;
    DefaultSubvolume: EngineError::DefaultSubvolume(TREE) => PERM, Kind::PermissionDenied;
    NotPermitted: EngineError::NotPermitted(FILE) => PERM, Kind::PermissionDenied;
    Invalid: EngineError::Invalid("argument") => INVAL, Kind::InvalidInput;
    NoXattr: EngineError::NoXattr => NODATA, Kind::NotFound;
    XattrNamespace: EngineError::XattrNamespace => OPNOTSUPP, Kind::Unsupported;
    XattrTooBig: EngineError::XattrTooBig => NOSPC, Kind::StorageFull;
    TooManySymlinks: EngineError::TooManySymlinks => LOOP, looped();
    NoSuchTree: EngineError::NoSuchTree(TREE) => UCLEAN, Kind::InvalidData;
    NoSuchSubvolume: EngineError::NoSuchSubvolume(TREE) => STALE, Kind::NotFound;
    NoSuchInode: EngineError::NoSuchInode(FILE) => STALE, Kind::NotFound;
    Corrupt: EngineError::Corrupt { tree: TREE, key: Key::MIN, what: CorruptItem::Loop } => UCLEAN, Kind::InvalidData;
    DataRead: EngineError::DataRead { file: FILE, offset: 0, source: unread(AttemptProblem::Content) } => IO, Kind::InvalidData;
    CsumMissing: EngineError::CsumMissing { file: FILE, offset: 0, logical: AT } => IO, Kind::InvalidData;
    Decompress: EngineError::Decompress { file: FILE, offset: 0, source: CodecError::Zlib } => IO, Kind::InvalidData;
} nested Device, DeviceSet, Tree, Ref, Space);

fn engine_of(error: impl Into<EngineError>) -> Cause {
    Cause::Engine(error.into())
}

answers!(trees, TreeError, engine_of, {
    WouldBlock: TreeError::WouldBlock(WouldBlock) => AGAIN, Kind::WouldBlock;
    Corrupt: TreeError::Corrupt { tree: TREE, bytenr: AT, reason: block() } => UCLEAN, Kind::InvalidData;
    Read: TreeError::Read { tree: TREE, bytenr: AT, source: unread(AttemptProblem::Content) } => IO, Kind::InvalidData;
    Unexpected: TreeError::Unexpected { tree: TREE, bytenr: AT, reason: block() } => UCLEAN, Kind::InvalidData;
    KeyBound: TreeError::KeyBound { tree: TREE, bytenr: AT, last: Key::MIN, bound: Key::MIN } => UCLEAN, Kind::InvalidData;
    Unwritable: TreeError::Unwritable { tree: TREE, bytenr: AT, reason: block() } => UCLEAN, Kind::InvalidData;
    Misaligned: TreeError::Misaligned { tree: TREE, bytenr: AT } => UCLEAN, Kind::InvalidData;
    Level: TreeError::Level { tree: TREE, level: 9 } => UCLEAN, Kind::InvalidData;
});

answers!(references, RefError, engine_of, {
    Shapes: RefError::Shapes { bytenr: AT, one: SHAPE, other: SHAPE } => UCLEAN, Kind::InvalidData;
    MadeTwice: RefError::MadeTwice { bytenr: AT } => UCLEAN, Kind::InvalidData;
    Exists: RefError::Exists { bytenr: AT, shape: SHAPE, key: Key::MIN } => UCLEAN, Kind::InvalidData;
    NoExtent: RefError::NoExtent { bytenr: AT, shape: SHAPE, reference: None } => UCLEAN, Kind::InvalidData;
    Unlike: RefError::Unlike { bytenr: AT, shape: SHAPE, key: Key::MIN } => UCLEAN, Kind::InvalidData;
    NoReference: RefError::NoReference { bytenr: AT, reference: REFERENCE, dropped: 2, found: 1 } => UCLEAN, Kind::InvalidData;
    SecondReference: RefError::SecondReference { bytenr: AT, reference: REFERENCE } => UCLEAN, Kind::InvalidData;
    Overflow: RefError::Overflow { bytenr: AT, reference: REFERENCE } => UCLEAN, Kind::InvalidData;
    Sum: RefError::Sum { bytenr: AT, refs: 1 } => UCLEAN, Kind::InvalidData;
});

answers!(space, SpaceError, engine_of, {
    NoSpace: SpaceError::NoSpace { kind: BlockGroupType::Data, bytes: 1 } => NOSPC, Kind::StorageFull;
    ReadOnlyProfile: SpaceError::ReadOnlyProfile { kind: BlockGroupType::Data, profile: Profile::Raid5 } => NOSPC, Kind::StorageFull;
    SystemChunkArray: SpaceError::SystemChunkArray => NOSPC, Kind::StorageFull;
    NoBlockGroup: SpaceError::NoBlockGroup { start: AT } => INVAL, Kind::InvalidInput;
    InUse: SpaceError::InUse { start: AT } => BUSY, Kind::ResourceBusy;
    Device: SpaceError::Device(DeviceError::NoDevice) => INVAL, Kind::InvalidInput;
} nested DeviceSet);

answers!(device_set, DeviceSetError, engine_of, {
    NoSuchDevice: DeviceSetError::NoSuchDevice(DEVICE) => NOENT, Kind::NotFound;
    Missing: DeviceSetError::Missing(DEVICE) => NOENT, Kind::NotFound;
    OfSeed: DeviceSetError::OfSeed(DEVICE) => ROFS, Kind::ReadOnlyFilesystem;
    NoneMissing: DeviceSetError::NoneMissing => NOENT, Kind::NotFound;
    OnlyDevice: DeviceSetError::OnlyDevice => INVAL, Kind::InvalidInput;
    BelowMinimum: DeviceSetError::BelowMinimum(Profile::Raid1) => INVAL, Kind::InvalidInput;
    InTheWay: DeviceSetError::InTheWay { devid: DEVICE, groups: vec![AT] } => NOSPC, Kind::StorageFull;
    TooSmall: DeviceSetError::TooSmall(1) => INVAL, Kind::InvalidInput;
    BeyondDevice: DeviceSetError::BeyondDevice { devid: DEVICE, len_bytes: 1 } => FBIG, Kind::FileTooLarge;
    TargetTooSmall: DeviceSetError::TargetTooSmall { len_bytes: 1, wanted: 2 } => INVAL, Kind::InvalidInput;
    Ended: DeviceSetError::Ended => INTR, Kind::Interrupted;
    InProgress: DeviceSetError::InProgress => BUSY, Kind::ResourceBusy;
});

answers!(devices, DeviceError, engine_of, {
    WouldBlock: DeviceError::WouldBlock(WouldBlock) => AGAIN, Kind::WouldBlock;
    NoDevice: DeviceError::NoDevice => INVAL, Kind::InvalidInput;
    Open: DeviceError::Open { path: path(), source: broken() } => PIPE, Kind::BrokenPipe;
    Kind: DeviceError::Kind { path: path(), kind: "a pipe" } => INVAL, Kind::InvalidInput;
    InUse: DeviceError::InUse { path: path(), holder: Holder::Kernel } => BUSY, Kind::ResourceBusy;
    ReadRaw: DeviceError::ReadRaw { path: path(), offset: 0, len: 1, source: broken() } => PIPE, Kind::BrokenPipe;
    WriteRaw: DeviceError::WriteRaw { path: path(), offset: 0, len: 1, source: broken() } => PIPE, Kind::BrokenPipe;
    Flush: DeviceError::Flush { path: path(), source: broken() } => PIPE, Kind::BrokenPipe;
    Discard: DeviceError::Discard { path: path(), offset: 0, len: 1, source: broken() } => PIPE, Kind::BrokenPipe;
    NoCopy: DeviceError::NoCopy { logical: AT } => ROFS, Kind::ReadOnlyFilesystem;
    NoReplacement: DeviceError::NoReplacement { devid: DEVICE } => INVAL, Kind::InvalidInput;
    ReplacementFailed: DeviceError::ReplacementFailed { path: path(), reason: String::new() } => IO, Kind::Other;
    ParityWrite: DeviceError::ParityWrite { logical: AT } => ROFS, Kind::ReadOnlyFilesystem;
    NotBtrfs: DeviceError::NotBtrfs { path: path(), holds: None } => INVAL, Kind::InvalidData;
    HoldsVolume: DeviceError::HoldsVolume { path: path() } => BUSY, Kind::ResourceBusy;
    TotalBytes: DeviceError::TotalBytes { total_bytes: 1, devices_bytes: 2 } => ROFS, Kind::ReadOnlyFilesystem;
    DeviceFsid: DeviceError::DeviceFsid { devid: DEVICE, item: Uuid([1; 16]), device: Uuid([2; 16]) } => ROFS, Kind::ReadOnlyFilesystem;
    Incomplete: DeviceError::Incomplete { path: path() } => UCLEAN, Kind::InvalidData;
    Superblock: DeviceError::Superblock { path: path(), offset: 65536, source: SuperblockError::Magic } => UCLEAN, Kind::InvalidData;
    Unsupported: DeviceError::Unsupported { path: path(), source: SuperblockError::Magic } => OPNOTSUPP, Kind::Unsupported;
    OtherVolume: DeviceError::OtherVolume { path: path(), wanted: Uuid([1; 16]), found: Uuid([2; 16]) } => INVAL, Kind::InvalidInput;
    DuplicateDevice: DeviceError::DuplicateDevice { devid: DEVICE, generations: [1, 1], first: path(), second: path() } => INVAL, Kind::InvalidInput;
    Ambiguous: DeviceError::Ambiguous { devid: DEVICE, first: path(), second: path() } => INVAL, Kind::InvalidInput;
    Missing: DeviceError::Missing { devid: DEVICE, uuid: Uuid([0; 16]) } => NOENT, Kind::NotFound;
    Truncated: DeviceError::Truncated { path: path(), devid: DEVICE, len_bytes: 0, total_bytes: 1 } => UCLEAN, Kind::InvalidData;
    Chunk: DeviceError::Chunk { logical: AT, problem: ChunkProblem::SubStripes(1) } => UCLEAN, Kind::InvalidData;
    Scheme: DeviceError::from(scheme()) => OPNOTSUPP, Kind::Unsupported;
    Unwritable: DeviceError::Unwritable { logical: AT, profile: Profile::Raid1, missing: 1 } => ROFS, Kind::ReadOnlyFilesystem;
    NoChunk: DeviceError::NoChunk { logical: AT } => UCLEAN, Kind::InvalidData;
    NoMirror: DeviceError::NoMirror { logical: AT, mirror: 2, mirrors: 1 } => UCLEAN, Kind::InvalidData;
    Read: DeviceError::Read { devid: DEVICE, physical: Physical(0), logical: AT, len: 1, source: broken() } => PIPE, Kind::BrokenPipe;
    Rebuild: DeviceError::Rebuild { logical: AT, lost: 2, parities: 1 } => UCLEAN, Kind::InvalidData;
} nested FirstSuperblock, Foreign, Changed);

answers!(new_volumes, MkfsError, Cause::Mkfs, {
    Write: MkfsError::Write { devid: DEVICE, physical: Physical(0), source: broken() } => PIPE, Kind::BrokenPipe;
    Read: MkfsError::Read { devid: DEVICE, physical: Physical(0), source: broken() } => PIPE, Kind::BrokenPipe;
    Flush: MkfsError::Flush { devid: DEVICE, source: broken() } => PIPE, Kind::BrokenPipe;
    Resize: MkfsError::Resize { devid: DEVICE, len_bytes: 1, source: broken() } => PIPE, Kind::BrokenPipe;
    Scratch: MkfsError::Scratch(broken()) => PIPE, Kind::BrokenPipe;
    TooLarge: MkfsError::TooLarge => FBIG, Kind::FileTooLarge;
    DeviceTooSmall: MkfsError::DeviceTooSmall { index: 0, len_bytes: 0, min_bytes: 1 } => NOSPC, Kind::StorageFull;
    NoRoomForChunk: MkfsError::NoRoomForChunk { flags: BlockGroupFlags::DATA } => NOSPC, Kind::StorageFull;
    NoRoomForBlock: MkfsError::NoRoomForBlock { flags: BlockGroupFlags::DATA } => NOSPC, Kind::StorageFull;
    NotSettled: MkfsError::NotSettled { rounds: 9 } => IO, Kind::Other;
    Chunk: MkfsError::Chunk(ChunkProblem::SubStripes(1)) => IO, Kind::Other;
    Build: MkfsError::Build(BuildError::KeyOrder { last: Key::MIN, key: Key::MIN }) => IO, Kind::Other;
    LabelTooLong: MkfsError::LabelTooLong { len_bytes: 256 } => INVAL, Kind::InvalidInput;
    LabelNul: MkfsError::LabelNul => INVAL, Kind::InvalidInput;
    SectorsizeRange: MkfsError::SectorsizeRange(1) => INVAL, Kind::InvalidInput;
    SectorsizePower: MkfsError::SectorsizePower(1) => INVAL, Kind::InvalidInput;
    NodesizeSmall: MkfsError::NodesizeSmall { nodesize: 1, sectorsize: 2 } => INVAL, Kind::InvalidInput;
    NodesizeLarge: MkfsError::NodesizeLarge(1) => INVAL, Kind::InvalidInput;
    NodesizeUnaligned: MkfsError::NodesizeUnaligned { nodesize: 1, sectorsize: 2 } => INVAL, Kind::InvalidInput;
    NodesizePower: MkfsError::NodesizePower(1) => INVAL, Kind::InvalidInput;
    NodesizeMixed: MkfsError::NodesizeMixed { nodesize: 1, sectorsize: 2 } => INVAL, Kind::InvalidInput;
    MixedProfiles: MkfsError::MixedProfiles => INVAL, Kind::InvalidInput;
    BlockGroupTreeNeeds: MkfsError::BlockGroupTreeNeeds => INVAL, Kind::InvalidInput;
    TooFewDevices: MkfsError::TooFewDevices { kind: "data", profile: "raid1", have: 1, need: 2 } => INVAL, Kind::InvalidInput;
    DeviceUuids: MkfsError::DeviceUuids { identities: 1, devices: 2 } => INVAL, Kind::InvalidInput;
    DeviceCount: MkfsError::DeviceCount { devices: 1, planned: 2 } => INVAL, Kind::InvalidInput;
    Cancelled: MkfsError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
    DeviceShrank: MkfsError::DeviceShrank { devid: DEVICE, found: 0, planned: 1 } => INVAL, Kind::InvalidInput;
});

answers!(fills, FillError, Cause::Fill, {
    Read: FillError::Read { doing: "read", path: path(), source: broken() } => PIPE, Kind::BrokenPipe;
    Shrank: FillError::Shrank { path: path(), expected: 2, found: 1 } => BUSY, Kind::ResourceBusy;
    Replaced: FillError::Replaced { path: path() } => BUSY, Kind::ResourceBusy;
    IsTarget: FillError::IsTarget { path: path() } => INVAL, Kind::InvalidInput;
    NotADirectory: FillError::NotADirectory { path: path() } => NOTDIR, Kind::NotADirectory;
    NoSpace: FillError::NoSpace { needed: 2, available: 1 } => NOSPC, Kind::StorageFull;
    Limit: FillError::Limit { path: path(), limit: LimitError::NameTooLong { len: 256 } } => NAMETOOLONG, Kind::InvalidFilename;
    XattrsCollide: FillError::XattrsCollide { path: path() } => INVAL, Kind::InvalidInput;
    TooManyLinks: FillError::TooManyLinks { ino: 257 } => MLINK, Kind::TooManyLinks;
    Parity: FillError::Parity { profile: "raid5" } => INVAL, Kind::InvalidInput;
    NotFound: FillError::NotFound { path: path() } => NOENT, Kind::NotFound;
    Codec: FillError::Codec(CodecError::Zlib) => IO, Kind::InvalidData;
} nested Mkfs, Archive);

answers!(archives, ArchiveError, |error| Cause::Fill(FillError::Archive(error)), {
    Read: ArchiveError::Read { offset: 0, source: broken() } => PIPE, Kind::BrokenPipe;
    Truncated: ArchiveError::Truncated { offset: 0 } => UCLEAN, Kind::UnexpectedEof;
    NoHeader: ArchiveError::NoHeader { offset: 0 } => UCLEAN, Kind::InvalidData;
    Number: ArchiveError::Number { offset: 0, field: "mode" } => UCLEAN, Kind::InvalidData;
    Pax: ArchiveError::Pax { offset: 0 } => UCLEAN, Kind::InvalidData;
    SparseMap: ArchiveError::SparseMap { offset: 0 } => UCLEAN, Kind::InvalidData;
    TooManyParts: ArchiveError::TooManyParts { offset: 0, max: 1 } => UCLEAN, Kind::InvalidData;
    TooLong: ArchiveError::TooLong { offset: 0, len: 1 } => UCLEAN, Kind::InvalidData;
    MultiVolume: ArchiveError::MultiVolume { offset: 0 } => OPNOTSUPP, Kind::Unsupported;
    Outside: ArchiveError::Outside { path: path() } => UCLEAN, Kind::InvalidData;
    Name: ArchiveError::Name { path: path() } => UCLEAN, Kind::InvalidData;
    NotADirectory: ArchiveError::NotADirectory { path: path() } => UCLEAN, Kind::InvalidData;
    ReplacesDirectory: ArchiveError::ReplacesDirectory { path: path() } => UCLEAN, Kind::InvalidData;
    LinkTarget: ArchiveError::LinkTarget { path: path(), target: path() } => UCLEAN, Kind::InvalidData;
    TooMany: ArchiveError::TooMany { max: 1 } => UCLEAN, Kind::InvalidData;
});

answers!(scrubs, ScrubError, Cause::from, {
    Device: ScrubError::Device(DeviceError::NoDevice) => INVAL, Kind::InvalidInput;
    Engine: ScrubError::Engine(EngineError::NotFound) => NOENT, Kind::NotFound;
    NoDevice: ScrubError::NoDevice(7) => NOENT, Kind::NotFound;
    Thread: ScrubError::Thread(broken()) => PIPE, Kind::BrokenPipe;
    ReadOnly: ScrubError::ReadOnly => ROFS, Kind::ReadOnlyFilesystem;
});

answers!(checks, CheckError, Cause::Check, {
    Open: CheckError::Open(DeviceError::NoDevice) => INVAL, Kind::InvalidInput;
    SuperblockCopy: CheckError::SuperblockCopy { mirror: 1, source: SuperblockError::Magic } => UCLEAN, Kind::InvalidData;
    NoSuperblockCopy: CheckError::NoSuperblockCopy { mirror: 1 } => NOENT, Kind::NotFound;
    NoBackupRoot: CheckError::NoBackupRoot => UCLEAN, Kind::InvalidData;
    NoTreeRoot: CheckError::NoTreeRoot { bytenr: 0 } => UCLEAN, Kind::InvalidData;
    Thread: CheckError::Thread(broken()) => PIPE, Kind::BrokenPipe;
    Spill: CheckError::Spill(broken()) => PIPE, Kind::BrokenPipe;
    Cancelled: CheckError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
});

answers!(sends, SendError, Cause::Send, {
    Engine: SendError::Engine(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Nameless: SendError::Nameless(TREE) => INVAL, Kind::InvalidInput;
    Spill: SendError::Spill(broken()) => PIPE, Kind::BrokenPipe;
    Thread: SendError::Thread => IO, Kind::Other;
    CompressedNeedsVersion2: SendError::CompressedNeedsVersion2 => INVAL, Kind::InvalidInput;
    OtherVolume: SendError::OtherVolume(TREE, TREE) => XDEV, Kind::CrossesDevices;
    Corrupt: SendError::Corrupt { root: TREE, ino: InodeNr(257), what: CorruptFile::Undecodable } => UCLEAN, Kind::InvalidData;
} nested Write);

answers!(writes_of_streams, WriteError, |error| Cause::Send(SendError::Write(error)), {
    Write: WriteError::Write(broken()) => PIPE, Kind::BrokenPipe;
    TooLong: WriteError::TooLong { command: CommandKind::Mkdir, attribute: Attribute::Path, len_bytes: 1 } => UCLEAN, Kind::InvalidData;
    TooLarge: WriteError::TooLarge { command: CommandKind::Mkdir, len_bytes: 2, max_bytes: 1 } => UCLEAN, Kind::InvalidData;
    NeedsVersion2: WriteError::NeedsVersion2(CommandKind::Mkdir) => UCLEAN, Kind::InvalidData;
    Nul: WriteError::Nul { command: CommandKind::Mkdir, attribute: Attribute::Path } => UCLEAN, Kind::InvalidData;
    Unknown: WriteError::Unknown(99) => UCLEAN, Kind::InvalidData;
});

answers!(streams, Fault, |fault| Cause::Stream(stream(fault)), {
    Read: Fault::Read(broken()) => PIPE, Kind::BrokenPipe;
    Empty: Fault::Empty => UCLEAN, Kind::UnexpectedEof;
    ShortRead: Fault::ShortRead { expected: 2, read: 1 } => UCLEAN, Kind::UnexpectedEof;
    UnexpectedEnd: Fault::UnexpectedEnd => UCLEAN, Kind::UnexpectedEof;
    Magic: Fault::Magic => UCLEAN, Kind::InvalidData;
    Version: Fault::Version(9) => OPNOTSUPP, Kind::Unsupported;
    TooLarge: Fault::TooLarge { len_bytes: 2, max_bytes: 1 } => UCLEAN, Kind::InvalidData;
    Crc: Fault::Crc { stored: 1, found: 2 } => UCLEAN, Kind::InvalidData;
    NewerCommand: Fault::NewerCommand(CommandKind::Mkdir) => OPNOTSUPP, Kind::Unsupported;
    NewerAttribute: Fault::NewerAttribute(Attribute::Path) => OPNOTSUPP, Kind::Unsupported;
    UnknownAttribute: Fault::UnknownAttribute(99) => UCLEAN, Kind::InvalidData;
    CutAttribute: Fault::CutAttribute => UCLEAN, Kind::InvalidData;
    MissingAttribute: Fault::MissingAttribute(Attribute::Path) => UCLEAN, Kind::InvalidData;
    AttributeSize: Fault::AttributeSize { attribute: Attribute::Path, expected: 2, found: 1 } => UCLEAN, Kind::InvalidData;
});

answers!(receives, ReceiveFault, receive, {
    Stream: ReceiveFault::Stream(stream(Fault::Empty)) => UCLEAN, Kind::UnexpectedEof;
    Commands: ReceiveFault::Commands(2) => IO, Kind::Other;
    Cancelled: ReceiveFault::Cancelled(Cancelled) => INTR, Kind::Interrupted;
} nested Command);

answers!(commands_of_streams, CommandFault, command, {
    NoSubvolume: CommandFault::NoSubvolume => UCLEAN, Kind::InvalidData;
    NotBegun: CommandFault::NotBegun => UCLEAN, Kind::InvalidData;
    FileRange: CommandFault::FileRange { offset: 1, len: 1 } => UCLEAN, Kind::InvalidData;
    Mode: CommandFault::Mode { what: "mode", value: 1 } => UCLEAN, Kind::InvalidData;
    Owner: CommandFault::Owner { uid: 1, gid: 1 } => UCLEAN, Kind::InvalidData;
    Device: CommandFault::Device(1) => UCLEAN, Kind::InvalidData;
    Time: CommandFault::Time(1) => UCLEAN, Kind::InvalidData;
    LinkTarget: CommandFault::LinkTarget(0) => UCLEAN, Kind::InvalidData;
} nested Target, Path, Encoded);

answers!(targets_of_streams, TargetError, |error| command(CommandFault::Target(error)), {
    Engine: TargetError::Engine(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Refused: TargetError::Refused(Refused::Access) => ACCESS, Kind::PermissionDenied;
    Io: TargetError::Io(broken()) => PIPE, Kind::BrokenPipe;
    NoParent: TargetError::NoParent(Uuid([1; 16])) => NOENT, Kind::NotFound;
    NoCloneSource: TargetError::NoCloneSource(Uuid([1; 16])) => NOENT, Kind::NotFound;
    Modified: TargetError::Modified { id: TREE, uuid: Uuid([1; 16]) } => PERM, Kind::PermissionDenied;
    Unreachable: TargetError::Unreachable(TREE) => NOENT, Kind::NotFound;
    OtherSubvolume: TargetError::OtherSubvolume => XDEV, Kind::CrossesDevices;
    FallocateMode: TargetError::FallocateMode(1) => OPNOTSUPP, Kind::Unsupported;
});

answers!(diffs, DiffError, Cause::Diff, {
    OtherVolume: DiffError::OtherVolume => XDEV, Kind::CrossesDevices;
    Engine: DiffError::Engine(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Tree: DiffError::Tree(TreeError::Level { tree: TREE, level: 9 }) => UCLEAN, Kind::InvalidData;
    Corrupt: DiffError::Corrupt { tree: TREE, key: Key::MIN } => UCLEAN, Kind::InvalidData;
    Path: DiffError::Path { tree: TREE, inode: 257 } => UCLEAN, Kind::InvalidData;
    TooManyNames: DiffError::TooManyNames { tree: TREE, inode: 257 } => UCLEAN, Kind::InvalidData;
    Spill: DiffError::Spill(broken()) => PIPE, Kind::BrokenPipe;
});

answers!(copies, CopyError, Cause::Copy, {
    Engine: CopyError::Engine(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Make: CopyError::Make(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Keep: CopyError::Keep { what: String::new(), source: full() } => NOSPC, Kind::StorageFull;
    Write: CopyError::Write(broken()) => PIPE, Kind::BrokenPipe;
    Host: CopyError::Host { call: "read", source: broken() } => PIPE, Kind::BrokenPipe;
    At: CopyError::At { path: String::new(), source: Box::new(CopyError::SameFile) } => INVAL, Kind::InvalidInput;
    NothingRead: CopyError::NothingRead(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    GaveUp: CopyError::GaveUp(0) => UCLEAN, Kind::InvalidData;
    Limit: CopyError::Limit(LimitError::NameTooLong { len: 256 }) => NAMETOOLONG, Kind::InvalidFilename;
    CannotShare: CopyError::CannotShare => OPNOTSUPP, Kind::Unsupported;
    SameFile: CopyError::SameFile => INVAL, Kind::InvalidInput;
    Image: CopyError::Image => INVAL, Kind::InvalidInput;
    UnknownKind: CopyError::UnknownKind => OPNOTSUPP, Kind::Unsupported;
    Cancelled: CopyError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
} nested Dest, Metadata, Walk);

answers!(destinations_of_copies, DestError, |error| Cause::Copy(CopyError::Dest(error)), {
    Name: DestError::Name => NAMETOOLONG, Kind::InvalidFilename;
    ReplacesDirectory: DestError::ReplacesDirectory => ISDIR, Kind::IsADirectory;
    ReplacesImage: DestError::ReplacesImage => INVAL, Kind::InvalidInput;
    ReplacesVolume: DestError::ReplacesVolume(Box::new(DeviceError::NoDevice)) => INVAL, Kind::InvalidInput;
    ReplacedByDirectory: DestError::ReplacedByDirectory => NOTDIR, Kind::NotADirectory;
    Call: DestError::Call { call: "open", source: broken() } => PIPE, Kind::BrokenPipe;
});

answers!(unpacked_archives, UnpackError, Cause::Unpack, {
    At: UnpackError::At { path: String::new(), source: Box::new(UnpackError::Outside) } => UCLEAN, Kind::InvalidData;
    Archive: UnpackError::Archive(ArchiveError::Truncated { offset: 0 }) => UCLEAN, Kind::UnexpectedEof;
    Ended: UnpackError::Ended { members: 1, source: ArchiveError::NoHeader { offset: 0 } } => UCLEAN, Kind::InvalidData;
    Copy: UnpackError::Copy(CopyError::SameFile) => INVAL, Kind::InvalidInput;
    Limit: UnpackError::Limit(LimitError::NameTooLong { len: 256 }) => NAMETOOLONG, Kind::InvalidFilename;
    Outside: UnpackError::Outside => UCLEAN, Kind::InvalidData;
    Root: UnpackError::Root => UCLEAN, Kind::InvalidData;
    NoTarget: UnpackError::NoTarget(String::new()) => NOENT, Kind::NotFound;
    ReplacesFullDirectory: UnpackError::ReplacesFullDirectory => NOTEMPTY, Kind::DirectoryNotEmpty;
    Acl: UnpackError::Acl => UCLEAN, Kind::InvalidData;
    Times: UnpackError::Times { dir: FILE, source: full() } => NOSPC, Kind::StorageFull;
    Cancelled: UnpackError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
});

answers!(written_archives, TarError, Cause::Tar, {
    Engine: TarError::Engine(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
    Write: TarError::Write(broken()) => PIPE, Kind::BrokenPipe;
    Cancelled: TarError::Cancelled(Cancelled) => INTR, Kind::Interrupted;
});

answers!(refusals, Refused, Cause::from, {
    Access: Refused::Access => ACCESS, Kind::PermissionDenied;
    Permission: Refused::Permission => PERM, Kind::PermissionDenied;
    ReadOnly: Refused::ReadOnly => ROFS, Kind::ReadOnlyFilesystem;
    Volume: Refused::Volume(EngineError::NoSpace) => NOSPC, Kind::StorageFull;
});

answers!(layers, SearchError, Cause::Layers, {
    Device: SearchError::Device(DeviceError::NoDevice) => INVAL, Kind::InvalidInput;
    Ambiguous: SearchError::Ambiguous { first: String::new(), second: String::new(), role: 0, array: String::new() } => INVAL, Kind::InvalidInput;
    ReadOnly: SearchError::ReadOnly("on a partition") => ROFS, Kind::ReadOnlyFilesystem;
    Several: SearchError::Several(String::new()) => INVAL, Kind::InvalidInput;
    NotFound: SearchError::NotFound { chosen: String::new(), volumes: String::new() } => NOENT, Kind::NotFound;
    Unreadable: SearchError::Unreadable(String::new()) => INVAL, Kind::InvalidData;
});

answers!(causes, Cause, std::convert::identity, {
    Named: Cause::Named(Error::new("read", &path(), Cause::SameFile)) => INVAL, Kind::InvalidInput;
    Host: Cause::Host(broken()) => PIPE, Kind::BrokenPipe;
    NoName: Cause::NoName(path()) => BUSY, Kind::ResourceBusy;
    SameFile: Cause::SameFile => INVAL, Kind::InvalidInput;
    IntoItself: Cause::IntoItself => INVAL, Kind::InvalidInput;
    Subvolume: Cause::Subvolume(path()) => XDEV, Kind::CrossesDevices;
    NoSubvolume: Cause::NoSubvolume(9) => NOENT, Kind::NotFound;
    Elsewhere: Cause::Elsewhere => UCLEAN, Kind::InvalidData;
    OtherVolume: Cause::OtherVolume => XDEV, Kind::CrossesDevices;
    NotOpenFor: Cause::NotOpenFor("reading") => BADF, io::Error::from(Errno::BADF).kind();
    Cancelled: Cause::Cancelled(Cancelled) => INTR, Kind::Interrupted;
    Occupied: Cause::Occupied { path: path(), found: String::new() } => EXIST, Kind::AlreadyExists;
    Zoned: Cause::Zoned => OPNOTSUPP, Kind::Unsupported;
    InvalidOptions: Cause::InvalidOptions("options") => INVAL, Kind::InvalidInput;
} nested Engine, Refused, Mkfs, Features, Fill, Check, Layers, Scrub, Send, Stream, Receive, Command, Diff, Copy, Unpack, Tar, Option);

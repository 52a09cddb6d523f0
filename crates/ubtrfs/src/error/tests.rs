//! Tests of the kinds of errors. The matches of the layers leave no variant out, so neither may these lists.

use io::ErrorKind as Kind;
use ubtrfs_device::nonblocking::WouldBlock;
use ubtrfs_device::{
    Attempt, AttemptProblem, ChunkProblem, DeviceError, DeviceName, Holder, ReadFailure,
};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::check::CorruptBlock;
use ubtrfs_format::compress::CodecError;
use ubtrfs_format::ids::{DevId, InodeNr, Logical, Physical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::{BlockGroupType, CorruptItem, FileId, RefError, SpaceError, TreeError};
use ubtrfs_mkfs::MkfsError;

use super::*;

mod errno;

const FILE: FileId = FileId {
    root: RootId::FS_TREE,
    ino: InodeNr(257),
};
const AT: Logical = Logical(1 << 20);
const TREE: RootId = RootId::FS_TREE;
const DEVICE: DevId = DevId(1);

fn broken() -> io::Error {
    Kind::BrokenPipe.into()
}

fn path() -> PathBuf {
    PathBuf::from("image")
}

fn block() -> CorruptBlock {
    CorruptBlock::Size {
        wanted: 16384,
        found: 0,
    }
}

fn unread(problem: AttemptProblem) -> ReadFailure {
    ReadFailure {
        logical: AT,
        len: 4096,
        index: 0,
        attempts: vec![Attempt {
            mirror: 1,
            place: None,
            problem,
        }],
    }
}

fn check(error: impl Into<EngineError>, kind: Kind) {
    let error = Cause::Engine(error.into());
    assert_eq!(error.kind(), kind, "{error}");
    // The context that an operation adds does not change it.
    let named = Err::<(), _>(error).naming("read", Path::new("/x"));
    assert_eq!(named.unwrap_err().kind(), kind);
}

#[test]
fn errors_of_files_and_volumes_have_the_kinds_of_std() {
    check(WouldBlock, Kind::WouldBlock);
    check(EngineError::NotFound, Kind::NotFound);
    check(EngineError::NoXattr, Kind::NotFound);
    check(EngineError::NoSuchInode(FILE), Kind::NotFound);
    check(EngineError::NoSuchSubvolume(TREE), Kind::NotFound);
    check(EngineError::Exists, Kind::AlreadyExists);
    check(EngineError::NotEmpty(FILE), Kind::DirectoryNotEmpty);
    check(EngineError::NotADirectory(FILE), Kind::NotADirectory);
    check(EngineError::IsADirectory(FILE), Kind::IsADirectory);
    check(EngineError::NoSpace, Kind::StorageFull);
    check(EngineError::XattrTooBig, Kind::StorageFull);
    check(EngineError::FileTooBig, Kind::FileTooLarge);
    for error in [
        EngineError::ReadOnly,
        EngineError::ReadOnlySubvolume(TREE),
        EngineError::Aborted(String::new()),
        EngineError::Closed,
        EngineError::Unwritable(String::new()),
        EngineError::Seed,
    ] {
        check(error, Kind::ReadOnlyFilesystem);
    }
    check(EngineError::NotPermitted(FILE), Kind::PermissionDenied);
    check(EngineError::DefaultSubvolume(TREE), Kind::PermissionDenied);
    check(EngineError::WritableSubvolume(TREE), Kind::PermissionDenied);
    check(EngineError::HeldSubvolume(TREE), Kind::PermissionDenied);
    check(EngineError::CrossSubvolume, Kind::CrossesDevices);
    check(EngineError::NameTooLong, Kind::InvalidFilename);
    check(EngineError::NameHashFull, Kind::Other);
    check(EngineError::TooManyLinks, Kind::TooManyLinks);
    let looped = io::Error::from(rustix::io::Errno::LOOP).kind();
    check(EngineError::TooManySymlinks, looped);
    for error in [
        EngineError::Invalid("argument"),
        EngineError::Unaligned,
        EngineError::CsumsDiffer,
        EngineError::NotASymlink(FILE),
        EngineError::NotAFile(FILE),
        EngineError::NotASubvolume,
    ] {
        check(error, Kind::InvalidInput);
    }
    check(EngineError::XattrNamespace, Kind::Unsupported);
    check(EngineError::NoDiscard, Kind::Unsupported);
    check(EngineError::Thread(broken()), Kind::BrokenPipe);
}

#[test]
fn damage_is_invalid_data() {
    check(RefError::MadeTwice { bytenr: AT }, Kind::InvalidData);
    check(EngineError::NoSuchTree(TREE), Kind::InvalidData);
    let item = EngineError::Corrupt {
        tree: TREE,
        key: Key::MIN,
        what: CorruptItem::Loop,
    };
    check(item, Kind::InvalidData);
    let csum = EngineError::CsumMissing {
        file: FILE,
        offset: 0,
        logical: AT,
    };
    check(csum, Kind::InvalidData);
    let extent = EngineError::Decompress {
        file: FILE,
        offset: 0,
        source: CodecError::Zlib,
    };
    check(extent, Kind::InvalidData);
    let damaged = |source| EngineError::DataRead {
        file: FILE,
        offset: 0,
        source,
    };
    check(damaged(unread(AttemptProblem::Content)), Kind::InvalidData);
    let device = DeviceError::Read {
        devid: DEVICE,
        physical: Physical(0),
        logical: AT,
        len: 1,
        source: broken(),
    };
    check(damaged(unread(device.into())), Kind::Other);
    let bytenr = AT;
    let tree = TREE;
    check(TreeError::WouldBlock(WouldBlock), Kind::WouldBlock);
    let source = unread(AttemptProblem::Content);
    let read = TreeError::Read {
        tree,
        bytenr,
        source,
    };
    check(read, Kind::InvalidData);
    let reason = block;
    #[rustfmt::skip]
    let damaged = [
        TreeError::Corrupt { tree, bytenr, reason: reason() },
        TreeError::Unexpected { tree, bytenr, reason: reason() },
        TreeError::KeyBound { tree, bytenr, last: Key::MIN, bound: Key::MIN },
        TreeError::Misaligned { tree, bytenr },
        TreeError::Level { tree, level: 9 },
    ];
    for error in damaged {
        check(error, Kind::InvalidData);
    }
    let unwritable = TreeError::Unwritable {
        tree,
        bytenr,
        reason: reason(),
    };
    check(unwritable, Kind::InvalidData);
}

#[test]
fn faults_of_the_program_or_lost_data_are_of_no_kind() {
    let unbuilt = ubtrfs_fs::BuildError::KeyOrder {
        last: Key::MIN,
        key: Key::MIN,
    };
    check(unbuilt, Kind::Other);
    check(EngineError::NoConvergence(9), Kind::Other);
    check(EngineError::CommitPanicked(String::new()), Kind::Other);
    let lost = EngineError::DataLost {
        file: FILE,
        reason: String::new(),
    };
    check(lost, Kind::Other);
}

#[test]
fn space_that_is_missing_is_storage_full() {
    let kind = BlockGroupType::Data;
    check(SpaceError::NoSpace { kind, bytes: 1 }, Kind::StorageFull);
    let profile = Profile::Raid5;
    let parity = SpaceError::ReadOnlyProfile { kind, profile };
    check(parity, Kind::StorageFull);
    check(SpaceError::SystemChunkArray, Kind::StorageFull);
    check(SpaceError::NoBlockGroup { start: AT }, Kind::InvalidInput);
    check(SpaceError::InUse { start: AT }, Kind::ResourceBusy);
    check(
        SpaceError::Device(DeviceError::NoDevice),
        Kind::InvalidInput,
    );
}

#[test]
fn errors_of_devices_have_the_kinds_of_their_causes() {
    let (path, source) = (path, broken);
    #[rustfmt::skip]
    let of_the_system = [
        DeviceError::Open { path: path(), source: source() },
        DeviceError::ReadRaw { path: path(), offset: 0, len: 1, source: source() },
        DeviceError::WriteRaw { path: path(), offset: 0, len: 1, source: source() },
        DeviceError::Flush { path: path(), source: source() },
        DeviceError::Read { devid: DEVICE, physical: Physical(0), logical: AT, len: 1, source: source() },
    ];
    for error in of_the_system {
        check(error, Kind::BrokenPipe);
    }
    check(DeviceError::WouldBlock(WouldBlock), Kind::WouldBlock);
    for holder in [
        Holder::Lock { pid: Some(1) },
        Holder::ThisProcess,
        Holder::Loop(String::new()),
        Holder::Kernel,
    ] {
        let path = path();
        check(DeviceError::InUse { path, holder }, Kind::ResourceBusy);
    }
    let uuid = Uuid([0; 16]);
    check(
        DeviceError::Missing {
            devid: DEVICE,
            uuid,
        },
        Kind::NotFound,
    );
    #[rustfmt::skip]
    let of_the_caller = [
        DeviceError::NoDevice,
        DeviceError::Kind { path: path(), kind: "a pipe" },
        DeviceError::OtherVolume { path: path(), wanted: uuid, found: uuid },
        DeviceError::DuplicateDevice { devid: DEVICE, generations: [1, 1], first: path(), second: path() },
        DeviceError::Ambiguous { devid: DEVICE, first: path(), second: path() },
    ];
    for error in of_the_caller {
        check(error, Kind::InvalidInput);
    }
    let magic = || SuperblockError::Magic;
    #[rustfmt::skip]
    let damaged = [
        DeviceError::NotBtrfs { path: path(), holds: None },
        DeviceError::Incomplete { path: path() },
        DeviceError::Superblock { path: path(), offset: 65536, source: magic() },
        DeviceError::Truncated { path: path(), devid: DEVICE, len_bytes: 0, total_bytes: 1 },
        DeviceError::Chunk { logical: AT, problem: ChunkProblem::SubStripes(1) },
        DeviceError::NoChunk { logical: AT },
        DeviceError::NoMirror { logical: AT, mirror: 2, mirrors: 1 },
        DeviceError::Rebuild { logical: AT, lost: 2, parities: 1 },
    ];
    for error in damaged {
        check(error, Kind::InvalidData);
    }
    let feature = DeviceError::Unsupported {
        path: path(),
        source: magic(),
    };
    check(feature, Kind::Unsupported);
    let scheme = DeviceName::from("nbd://host/export").path().unwrap_err();
    check(DeviceError::from(scheme), Kind::Unsupported);
    #[rustfmt::skip]
    let unwritable = [
        DeviceError::Unwritable { logical: AT, profile: Profile::Raid1, missing: 1 },
        DeviceError::ParityWrite { logical: AT },
        DeviceError::NoCopy { logical: AT },
        DeviceError::TotalBytes { total_bytes: 1, devices_bytes: 2 },
        DeviceError::DeviceFsid { devid: DEVICE, item: Uuid([1; 16]), device: Uuid([2; 16]) },
    ];
    for error in unwritable {
        check(error, Kind::ReadOnlyFilesystem);
    }
}

#[test]
fn errors_of_mkfs_are_of_the_options_the_size_or_the_device() {
    let check = |error, kind| assert_eq!(Cause::Mkfs(error).kind(), kind);
    let (devid, physical, source) = (DEVICE, Physical(0), broken);
    #[rustfmt::skip]
    let of_the_system = [
        MkfsError::Write { devid, physical, source: source() },
        MkfsError::Read { devid, physical, source: source() },
        MkfsError::Flush { devid, source: source() },
        MkfsError::Resize { devid, len_bytes: 1, source: source() },
        MkfsError::Scratch(source()),
    ];
    for error in of_the_system {
        check(error, Kind::BrokenPipe);
    }
    check(MkfsError::TooLarge, Kind::FileTooLarge);
    let flags = BlockGroupFlags::DATA;
    #[rustfmt::skip]
    let too_small = [
        MkfsError::DeviceTooSmall { index: 0, len_bytes: 0, min_bytes: 1 },
        MkfsError::NoRoomForChunk { flags },
        MkfsError::NoRoomForBlock { flags },
    ];
    for error in too_small {
        check(error, Kind::StorageFull);
    }
    #[rustfmt::skip]
    let internal = [
        MkfsError::NotSettled { rounds: 9 },
        MkfsError::Chunk(ChunkProblem::SubStripes(1)),
        MkfsError::Build(ubtrfs_fs::BuildError::KeyOrder { last: Key::MIN, key: Key::MIN }),
    ];
    for error in internal {
        check(error, Kind::Other);
    }
    let (nodesize, sectorsize) = (1, 2);
    #[rustfmt::skip]
    let options = [
        MkfsError::LabelTooLong { len_bytes: 256 },
        MkfsError::LabelNul,
        MkfsError::SectorsizeRange(1),
        MkfsError::SectorsizePower(1),
        MkfsError::NodesizeSmall { nodesize, sectorsize },
        MkfsError::NodesizeLarge(1),
        MkfsError::NodesizeUnaligned { nodesize, sectorsize },
        MkfsError::NodesizePower(1),
        MkfsError::NodesizeMixed { nodesize, sectorsize },
        MkfsError::MixedProfiles,
        MkfsError::BlockGroupTreeNeeds,
        MkfsError::TooFewDevices { kind: "data", profile: "raid1", have: 1, need: 2 },
        MkfsError::DeviceUuids { identities: 1, devices: 2 },
        MkfsError::DeviceCount { devices: 1, planned: 2 },
        MkfsError::DeviceShrank { devid, found: 0, planned: 1 },
    ];
    for error in options {
        check(error, Kind::InvalidInput);
    }
}

#[test]
fn an_error_names_the_operation_and_its_paths() {
    let refused = Err::<(), _>(EngineError::NotFound).naming("read", Path::new("/x"));
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "cannot read '/x': no such file or directory");
    let (from, to) = (Path::new("/x"), Path::new("/y"));
    let refused = Err::<(), _>(EngineError::Exists).naming_both("rename", from, to);
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "cannot rename '/x' to '/y': file exists");
    let same = Err::<(), _>(Cause::SameFile).naming("share", from);
    assert_eq!(same.unwrap_err().kind(), Kind::InvalidInput);
    assert_eq!(Cause::NoName(path()).kind(), Kind::ResourceBusy);
    assert_eq!(Cause::Subvolume(path()).kind(), Kind::CrossesDevices);
    assert_eq!(Cause::Zoned.kind(), Kind::Unsupported);
    let occupied = Cause::Occupied {
        path: path(),
        found: "btrfs".to_owned(),
    };
    assert_eq!(occupied.kind(), Kind::AlreadyExists);
}

#[test]
fn errors_of_trees_and_streams_are_of_their_causes() {
    use ubtrfs_check::CheckError;
    use ubtrfs_mkfs::{ArchiveError, FillError};
    use ubtrfs_stream::{DiffError, Fault, SendError, StreamError};

    use crate::transfer::copy::{CopyError, DestError};
    use crate::transfer::tar::TarError;
    use crate::transfer::unpack::UnpackError;

    let check = |cause: Cause, kind| assert_eq!(cause.kind(), kind, "{cause}");
    let stream = |fault| StreamError {
        offset: 0,
        command: None,
        fault,
    };
    let copy = || CopyError::Make(EngineError::NoSpace);
    let (needed, available) = (2, 1);
    #[rustfmt::skip]
    let all: Vec<(Cause, Kind)> = vec![
        (FillError::NoSpace { needed, available }.into(), Kind::StorageFull),
        (FillError::NotFound { path: path() }.into(), Kind::NotFound),
        (FillError::Archive(ArchiveError::Truncated { offset: 1 }).into(), Kind::UnexpectedEof),
        (CheckError::Open(DeviceError::NoDevice).into(), Kind::InvalidInput),
        (CheckError::Spill(broken()).into(), Kind::BrokenPipe),
        (CheckError::Thread(broken()).into(), Kind::BrokenPipe),
        (SendError::Nameless(TREE).into(), Kind::InvalidInput),
        (SendError::Write(broken().into()).into(), Kind::BrokenPipe),
        (stream(Fault::UnexpectedEnd).into(), Kind::UnexpectedEof),
        (stream(Fault::Version(9)).into(), Kind::Unsupported),
        (stream(Fault::Magic).into(), Kind::InvalidData),
        (DiffError::OtherVolume.into(), Kind::CrossesDevices),
        (CopyError::At { path: String::new(), source: Box::new(copy()) }.into(), Kind::StorageFull),
        (CopyError::Dest(DestError::Name).into(), Kind::InvalidFilename),
        (CopyError::SameFile.into(), Kind::InvalidInput),
        (UnpackError::Copy(copy()).into(), Kind::StorageFull),
        (UnpackError::Outside.into(), Kind::InvalidData),
        (TarError::Write(broken()).into(), Kind::BrokenPipe),
        (Cause::Host(broken()), Kind::BrokenPipe),
        (Cause::OtherVolume, Kind::CrossesDevices),
    ];
    for (cause, kind) in all {
        check(cause, kind);
    }
}

#[test]
fn refusals_are_of_callers() {
    use ubtrfs_fs::rights::Refused;

    let check = |refused: Refused, kind, is_refusal| {
        let cause = Cause::from(refused);
        assert_eq!(
            (cause.kind(), cause.is_refusal()),
            (kind, is_refusal),
            "{cause}"
        );
    };
    check(Refused::Access, Kind::PermissionDenied, true);
    check(Refused::Permission, Kind::PermissionDenied, true);
    check(Refused::ReadOnly, Kind::ReadOnlyFilesystem, false);
    let immutable = EngineError::NotPermitted(FILE).into();
    check(immutable, Kind::PermissionDenied, false);
    check(EngineError::NoSpace.into(), Kind::StorageFull, false);
}

#[test]
fn closed_volume_is_found_in_every_error_that_wraps_it() {
    use ubtrfs_fs::rights::Refused;
    use ubtrfs_stream::{
        CommandError, CommandFault, CommandKind, DiffError, ReceiveError, ReceiveFault, SendError,
        TargetError,
    };

    use crate::transfer::copy::CopyError;
    use crate::transfer::tar::TarError;
    use crate::transfer::unpack::UnpackError;

    let closed = || EngineError::Closed;
    let made = || CopyError::Make(closed());
    let command = |error: TargetError| {
        Box::new(CommandError {
            command: CommandKind::Mkdir,
            offset: 0,
            path: None,
            fault: CommandFault::Target(error),
        })
    };
    let (path, dir) = (String::new(), FILE);
    let (at, unpacked) = (Box::new(made()), Box::new(UnpackError::Copy(made())));
    let cause = ReceiveFault::Command(command(closed().into()));
    let unfinished = None;
    let all: Vec<Cause> = vec![
        closed().into(),
        Cause::Refused(Refused::Volume(closed())),
        SendError::Engine(closed()).into(),
        DiffError::Engine(closed()).into(),
        TarError::Engine(closed()).into(),
        ReceiveError { cause, unfinished }.into(),
        command(TargetError::Refused(Refused::Volume(closed()))).into(),
        CopyError::Engine(closed()).into(),
        CopyError::NothingRead(closed()).into(),
        CopyError::At {
            path: path.clone(),
            source: at,
        }
        .into(),
        UnpackError::At {
            path,
            source: unpacked,
        }
        .into(),
        UnpackError::Times {
            dir,
            source: Box::new(closed()),
        }
        .into(),
    ];
    for cause in all {
        let error = Err::<(), _>(cause)
            .naming("copy", Path::new("/x"))
            .unwrap_err();
        assert!(error.is_closed(), "{error}");
        let outer = Err::<(), _>(error).naming_alone("copy").unwrap_err();
        assert!(outer.is_closed(), "{outer}");
    }
    let full = Err::<(), _>(CopyError::Make(EngineError::NoSpace)).naming_alone("copy");
    assert!(!full.unwrap_err().is_closed());
}

//! Tests of errors: their messages, and the causes that others wrap.

use io::ErrorKind as Kind;
use ubtrfs_device::{Attempt, AttemptProblem, DeviceError, ReadFailure};
use ubtrfs_format::check::CorruptBlock;
use ubtrfs_format::ids::{DevId, InodeNr, Logical, Physical, RootId};
use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::FileId;

use super::*;

mod answers;
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

#[test]
fn data_that_no_device_gives_is_not_damaged_data() {
    let device = DeviceError::Read {
        devid: DEVICE,
        physical: Physical(0),
        logical: AT,
        len: 1,
        source: broken(),
    };
    let unread = EngineError::DataRead {
        file: FILE,
        offset: 0,
        source: unread(device.into()),
    };
    assert_eq!(Cause::Engine(unread).kind(), Kind::Other);
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

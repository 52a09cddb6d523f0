//! Every operation from bytes; lengths that are short, long, or wrong.

use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::*;
use crate::abi::init::InitIn;
use crate::abi::opcode::{FIXED_MAX, fixed_len};

fn header(operation: u32) -> InHeader {
    InHeader {
        opcode: operation,
        nodeid: 7,
        ..InHeader::new_zeroed()
    }
}

fn parsed<'a>(
    operation: u32,
    fixed: &(impl IntoBytes + Immutable),
    payload: &'a [u8],
) -> Parsed<Operation<'a>> {
    let fixed = fixed.as_bytes();
    assert_eq!(fixed_len(operation, fixed.len() == 16), Some(fixed.len()));
    super::operation(&header(operation), fixed, payload)
}

fn operation_of<'a>(
    operation: u32,
    fixed: &(impl IntoBytes + Immutable),
    payload: &'a [u8],
) -> Operation<'a> {
    parsed(operation, fixed, payload).unwrap_or_else(|_| panic!("{operation}"))
}

fn new_file(mode: u32, umask: u32) -> NewNode {
    new_node(mode, umask, DeviceNr::default(), None)
}

/// Creates an extension with the group of the directory.
fn groups(numbers: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = (12 + numbers.len() * 4).next_multiple_of(8) as u32;
    for number in [size, input::EXT_GROUPS, numbers.len() as u32] {
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    for number in numbers {
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    bytes.resize(size as usize, 0);
    bytes
}

#[test]
fn names_end_at_their_zero_byte() {
    let name: &[u8] = b"name";
    for (operation, wanted) in [
        (opcode::LOOKUP, Operation::Lookup { name }),
        (opcode::UNLINK, Operation::Unlink { name }),
        (opcode::RMDIR, Operation::Rmdir { name }),
        (opcode::REMOVEXATTR, Operation::Removexattr { name }),
    ] {
        assert_eq!(operation_of(operation, &(), b"name\0"), wanted);
        assert_eq!(operation_of(operation, &(), b"name\0trailing"), wanted);
        assert_eq!(parsed(operation, &(), b"name"), Err(Malformed));
        assert_eq!(parsed(operation, &(), b""), Err(Malformed));
    }
    let target: &[u8] = b"where";
    assert_eq!(
        operation_of(opcode::SYMLINK, &(), b"name\0where\0"),
        Operation::Symlink { name, target }
    );
    assert_eq!(parsed(opcode::SYMLINK, &(), b"name\0where"), Err(Malformed));
    assert_eq!(parsed(opcode::SYMLINK, &(), b"name\0"), Err(Malformed));
}

#[test]
fn forgetting_one_and_many() {
    assert_eq!(
        operation_of(opcode::FORGET, &input::ForgetIn { nlookup: 3 }, b""),
        Operation::Forget { lookups: 3 }
    );
    let two = [5u64, 1, 6, 2];
    let forgotten = |count| {
        let batch = input::BatchForgetIn { count, dummy: 0 };
        forgotten(batch.as_bytes(), two.as_bytes()).map(Iterator::collect::<Vec<_>>)
    };
    assert_eq!(forgotten(2), Ok(vec![(NodeId(5), 1), (NodeId(6), 2)]));
    assert_eq!(forgotten(3), Err(Malformed));
    assert_eq!(forgotten(u32::MAX), Err(Malformed));
}

#[test]
fn attributes_are_asked_for_in_two_ways() {
    assert_eq!(
        operation_of(opcode::GETATTR, &input::GetattrIn::new_zeroed(), b""),
        Operation::Getattr
    );
    assert_eq!(
        operation_of(opcode::STATX, &input::StatxIn::new_zeroed(), b""),
        Operation::Getattr
    );
}

#[test]
fn only_marked_attributes_change() {
    let mut asked = input::SetattrIn {
        valid: fattr::MODE | fattr::SIZE | fattr::FH | fattr::MTIME | fattr::CTIME,
        fh: 9,
        size: 10,
        mode: 0o644,
        uid: 1,
        mtime: (-2i64).cast_unsigned(),
        mtimensec: 5,
        ctime: 8,
        ..input::SetattrIn::new_zeroed()
    };
    let wanted = AttrChange {
        mode: Some(0o644),
        size_bytes: Some(10),
        mtime: Some(TimeChange::At(Time { secs: -2, nanos: 5 })),
        ctime: Some(Time { secs: 8, nanos: 0 }),
        ..AttrChange::default()
    };
    assert_eq!(
        operation_of(opcode::SETATTR, &asked, b""),
        Operation::Setattr {
            handle: Some(Handle(9)),
            change: wanted
        }
    );
    asked.valid = fattr::UID | fattr::GID | fattr::ATIME | fattr::ATIME_NOW | fattr::KILL_SUIDGID;
    let wanted = AttrChange {
        uid: Some(1),
        gid: Some(0),
        atime: Some(TimeChange::Now),
        kill_setid: true,
        ..AttrChange::default()
    };
    assert_eq!(
        operation_of(opcode::SETATTR, &asked, b""),
        Operation::Setattr {
            handle: None,
            change: wanted
        }
    );
}

#[test]
fn new_files_have_mode_umask_and_device() {
    let name: &[u8] = b"n";
    let asked = input::MknodIn {
        mode: 0o060_644,
        rdev: 0x1231_0345,
        umask: 0o22,
        padding: 0,
    };
    let mut new = new_file(0o060_644, 0o22);
    new.rdev = DeviceNr {
        major: 259,
        minor: 0x1_2345,
    };
    assert_eq!(
        operation_of(opcode::MKNOD, &asked, b"n\0"),
        Operation::Mknod { name, new }
    );
    let asked = input::MkdirIn {
        mode: 0o755,
        umask: 0o77,
    };
    let new = new_file(0o755, 0o77);
    assert_eq!(
        operation_of(opcode::MKDIR, &asked, b"n\0"),
        Operation::Mkdir { name, new }
    );
    let flags = (OFlags::RDWR | OFlags::EXCL | OFlags::CREATE).bits();
    let asked = input::CreateIn {
        flags,
        mode: 0o100_600,
        umask: 0,
        open_flags: 0,
    };
    let new = new_file(0o100_600, 0);
    let mut flags = open_flags(OFlags::RDWR.bits(), 0);
    flags.exclusive = true;
    assert_eq!(flags.access, AccessMode::ReadWrite);
    assert_eq!(
        operation_of(opcode::CREATE, &asked, b"n\0"),
        Operation::Create { name, new, flags }
    );
    assert_eq!(
        operation_of(opcode::TMPFILE, &asked, b"/\0"),
        Operation::Tmpfile { new, flags }
    );
}

#[test]
fn the_group_of_the_directory_is_in_an_extension() {
    let fixed = input::MkdirIn {
        mode: 0o755,
        umask: 0,
    };
    let with = |extension: &[u8], units: usize| {
        let payload = [b"name\0", extension].concat();
        let header = InHeader {
            total_extlen: units as u16,
            ..header(opcode::MKDIR)
        };
        match super::operation(&header, fixed.as_bytes(), &payload) {
            Ok(Operation::Mkdir { name, new }) => {
                assert_eq!(name, b"name");
                Ok(new.directory_group)
            }
            Err(Malformed) => Err(Malformed),
            other => panic!("{other:?}"),
        }
    };
    let one = groups(&[42]);
    assert_eq!(with(&one, one.len() / 8), Ok(Some(42)));
    assert_eq!(with(&groups(&[]), 2), Ok(None));
    // Preceded by another extension.
    let before = [16u32.to_ne_bytes(), 1u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
    let both = [&before[..], &one].concat();
    assert_eq!(with(&both, both.len() / 8), Ok(Some(42)));
    assert_eq!(with(b"", 0), Ok(None));
    // Longer than the buffer, and wrong sizes.
    assert_eq!(with(&one, 1000), Err(Malformed));
    for size in [0u32, 7, 9, 1 << 20, u32::MAX] {
        let mut lie = one.clone();
        lie[..4].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(with(&lie, lie.len() / 8), Err(Malformed), "{size}");
    }
    let mut lie = groups(&[]);
    lie[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
    lie.truncate(12);
    assert_eq!(directory_group(&lie), Err(Malformed));
}

#[test]
fn renames_have_two_names_and_known_flags() {
    let name: &[u8] = b"old";
    let to = (NodeId(3), &b"new"[..]);
    let asked = input::RenameIn { newdir: 3 };
    let flags = RenameFlags::default();
    let names = b"old\0new\0";
    assert_eq!(
        operation_of(opcode::RENAME, &asked, names),
        Operation::Rename { name, to, flags }
    );
    for (bits, no_replace, exchange, whiteout) in [
        (1, true, false, false),
        (2, false, true, false),
        (4, false, false, true),
    ] {
        let asked = input::Rename2In {
            newdir: 3,
            flags: bits,
            padding: 0,
        };
        let flags = RenameFlags {
            no_replace,
            exchange,
            whiteout,
        };
        assert_eq!(
            operation_of(opcode::RENAME2, &asked, names),
            Operation::Rename { name, to, flags }
        );
    }
    let unknown = input::Rename2In {
        newdir: 3,
        flags: 8,
        padding: 0,
    };
    assert_eq!(parsed(opcode::RENAME2, &unknown, names), Err(Malformed));
    assert_eq!(parsed(opcode::RENAME, &asked, b"old\0new"), Err(Malformed));
    assert_eq!(
        operation_of(opcode::LINK, &input::LinkIn { oldnodeid: 5 }, b"old\0"),
        Operation::Link {
            target: NodeId(5),
            name
        }
    );
}

#[test]
fn flags_of_open_are_those_of_the_system_call() {
    let all = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC | OFlags::DIRECT | OFlags::NOATIME;
    let asked = input::OpenIn {
        flags: all.bits(),
        open_flags: input::OPEN_KILL_SUIDGID,
    };
    let flags = OpenFlags {
        access: AccessMode::Write,
        append: true,
        truncate: true,
        exclusive: false,
        direct: true,
        sync: false,
        no_atime: true,
        kill_setid: true,
    };
    assert_eq!(
        operation_of(opcode::OPEN, &asked, b""),
        Operation::Open { flags }
    );
    // O_DSYNC with its usual number, and O_SYNC.
    for bits in [0o10_000, OFlags::SYNC.bits()] {
        assert!(open_flags(bits, 0).sync);
    }
    assert_eq!(
        operation_of(opcode::OPENDIR, &asked, b""),
        Operation::Opendir
    );
}

#[test]
fn contents_are_as_long_as_the_request_says() {
    let mut asked = input::WriteIn {
        fh: 1,
        offset: 2,
        size: 4,
        write_flags: input::WRITE_KILL_SUIDGID | input::WRITE_LOCKOWNER,
        flags: (OFlags::DIRECT | OFlags::APPEND | OFlags::SYNC).bits(),
        ..input::WriteIn::new_zeroed()
    };
    let how = WriteHow {
        from_cache: false,
        kill_setid: true,
        direct: true,
        append: true,
        sync: true,
    };
    assert_eq!(
        operation_of(opcode::WRITE, &asked, b"12345"),
        Operation::Write {
            handle: Handle(1),
            offset: 2,
            bytes: b"1234",
            how
        }
    );
    // A write from the cache may be made through any open file, so its flags are ignored. The kernel writes from its
    // cache with pages locked, regardless of the flags of the open file.
    asked.write_flags = 0;
    assert!(!write_how(&asked).direct);
    asked.write_flags = input::WRITE_CACHE;
    let how = WriteHow {
        from_cache: true,
        ..WriteHow::default()
    };
    assert_eq!(
        operation_of(opcode::WRITE, &asked, b"1234"),
        Operation::Write {
            handle: Handle(1),
            offset: 2,
            bytes: b"1234",
            how
        }
    );
    for size in [5, u32::MAX] {
        asked.size = size;
        assert_eq!(parsed(opcode::WRITE, &asked, b"1234"), Err(Malformed));
    }
    let asked = input::ReadIn {
        fh: 1,
        offset: 2,
        size: 3,
        ..input::ReadIn::new_zeroed()
    };
    let (handle, offset, size) = (Handle(1), 2, 3);
    for (operation, wanted) in [
        (
            opcode::READ,
            Operation::Read {
                handle,
                offset,
                size,
                how: ReadHow::default(),
            },
        ),
        (
            opcode::READDIR,
            Operation::Readdir {
                handle,
                offset,
                size,
            },
        ),
        (
            opcode::READDIRPLUS,
            Operation::Readdirplus {
                handle,
                offset,
                size,
            },
        ),
    ] {
        assert_eq!(operation_of(operation, &asked, b""), wanted);
    }
    assert_eq!(
        operation_of(opcode::READLINK, &(), b""),
        Operation::Readlink
    );
}

#[test]
fn xattrs_have_names_and_values() {
    let asked = input::SetxattrIn { size: 3, flags: 1 };
    let more = input::SetxattrInMore {
        setxattr_flags: 1,
        padding: 0,
    };
    let (name, value): (&[u8], &[u8]) = (b"user.a", b"\0b\0");
    let mut how = XattrHow {
        create: true,
        replace: false,
        kill_setgid: false,
    };
    let payload = b"user.a\0\0b\0";
    assert_eq!(
        operation_of(opcode::SETXATTR, &asked, payload),
        Operation::Setxattr { name, value, how }
    );
    how.kill_setgid = true;
    let extended = [asked.as_bytes(), more.as_bytes()].concat();
    assert_eq!(fixed_len(opcode::SETXATTR, true), Some(extended.len()));
    assert_eq!(
        super::operation(&header(opcode::SETXATTR), &extended, payload),
        Ok(Operation::Setxattr { name, value, how })
    );
    let lie = input::SetxattrIn { size: 4, flags: 2 };
    assert_eq!(parsed(opcode::SETXATTR, &lie, payload), Err(Malformed));

    let asked = input::GetxattrIn {
        size: u32::MAX,
        padding: 0,
    };
    let size = XATTR_MAX_BYTES;
    assert_eq!(
        operation_of(opcode::GETXATTR, &asked, b"user.a\0"),
        Operation::Getxattr { name, size }
    );
    assert_eq!(
        operation_of(opcode::LISTXATTR, &asked, b""),
        Operation::Listxattr { size }
    );
}

#[test]
fn requests_on_open_files() {
    let handle = Handle(4);
    let release = input::ReleaseIn {
        fh: 4,
        ..input::ReleaseIn::new_zeroed()
    };
    assert_eq!(
        operation_of(opcode::RELEASE, &release, b""),
        Operation::Release { handle }
    );
    assert_eq!(
        operation_of(opcode::RELEASEDIR, &release, b""),
        Operation::Releasedir { handle }
    );
    for (bits, data_only) in [(0, false), (1, true)] {
        let sync = input::FsyncIn {
            fh: 4,
            fsync_flags: bits,
            padding: 0,
        };
        assert_eq!(
            operation_of(opcode::FSYNC, &sync, b""),
            Operation::Fsync { handle, data_only }
        );
        let wanted = Operation::Fsyncdir { handle, data_only };
        assert_eq!(operation_of(opcode::FSYNCDIR, &sync, b""), wanted);
    }
    let flush = input::FlushIn {
        fh: 4,
        ..input::FlushIn::new_zeroed()
    };
    assert_eq!(
        operation_of(opcode::FLUSH, &flush, b""),
        Operation::Flush { handle }
    );
    let asked = input::FallocateIn {
        fh: 4,
        offset: 5,
        length: 6,
        mode: 3,
        padding: 0,
    };
    assert_eq!(
        operation_of(opcode::FALLOCATE, &asked, b""),
        Operation::Fallocate {
            handle,
            range: (5, 6),
            mode: 3
        }
    );
    let seek = |whence| input::LseekIn {
        fh: 4,
        offset: 5,
        whence,
        padding: 0,
    };
    for (whence, what) in [(3, SeekFor::Data), (4, SeekFor::Hole)] {
        let wanted = Operation::Lseek {
            handle,
            offset: 5,
            what,
        };
        assert_eq!(operation_of(opcode::LSEEK, &seek(whence), b""), wanted);
    }
    assert_eq!(parsed(opcode::LSEEK, &seek(0), b""), Err(Malformed));
    let asked = input::CopyFileRangeIn {
        fh_in: 4,
        off_in: 1,
        nodeid_out: 8,
        fh_out: 5,
        off_out: 2,
        len: u64::MAX,
        flags: 0,
    };
    for (operation, len) in [
        (opcode::COPY_FILE_RANGE, COPY_NARROW_MAX_BYTES),
        (opcode::COPY_FILE_RANGE_64, u64::MAX),
    ] {
        let wanted = Operation::CopyFileRange {
            from: CopyEnd {
                node: NodeId(7),
                handle,
                offset: 1,
            },
            to: CopyEnd {
                node: NodeId(8),
                handle: Handle(5),
                offset: 2,
            },
            len,
        };
        assert_eq!(operation_of(operation, &asked, b""), wanted);
    }
}

#[test]
fn requests_on_the_file_system() {
    assert_eq!(operation_of(opcode::STATFS, &(), b""), Operation::Statfs);
    assert_eq!(operation_of(opcode::DESTROY, &(), b""), Operation::Destroy);
    assert_eq!(
        operation_of(opcode::SYNCFS, &input::SyncfsIn { padding: 0 }, b""),
        Operation::Syncfs
    );
    let asked = input::AccessIn {
        mask: 4,
        padding: 0,
    };
    assert_eq!(
        operation_of(opcode::ACCESS, &asked, b""),
        Operation::Access { mask: 4 }
    );
}

#[test]
fn an_ioctl_has_its_argument() {
    let mut asked = input::IoctlIn {
        cmd: 0x8008_6601,
        in_size: 3,
        out_size: u32::MAX,
        ..input::IoctlIn::new_zeroed()
    };
    assert_eq!(
        operation_of(opcode::IOCTL, &asked, b"abc"),
        Operation::Ioctl {
            command: 0x8008_6601,
            input: b"abc",
            size: IOCTL_MAX_BYTES,
        }
    );
    for in_size in [4, u32::MAX] {
        asked.in_size = in_size;
        assert_eq!(parsed(opcode::IOCTL, &asked, b"abc"), Err(Malformed));
    }
}

#[test]
fn unknown_operations_have_no_form() {
    let unknown = [0, 7, 19, 31, 37, 40, 48, 49, 54, 4096, u32::MAX];
    for operation in [opcode::INIT].iter().chain(&unknown) {
        assert_eq!(fixed_len(*operation, true), None);
    }
    let init = [0; size_of::<InitIn>()];
    assert_eq!(
        super::operation(&header(opcode::INIT), &init, b""),
        Err(Malformed)
    );
}

#[test]
fn no_bytes_make_the_parser_panic() {
    let bytes: Vec<Vec<u8>> = vec![
        vec![0; 300],
        vec![0xff; 300],
        b"a\0b\0c".to_vec(),
        (0..=255).collect(),
    ];
    for operation in 0..=60 {
        for bytes in &bytes {
            for fixed in 0..=FIXED_MAX {
                for payload in [0, 1, 2, 5, bytes.len()] {
                    for total_extlen in [0, 1, 2, u16::MAX] {
                        let header = InHeader {
                            total_extlen,
                            ..header(operation)
                        };
                        let fixed = &bytes[..fixed.min(bytes.len())];
                        let _ = super::operation(&header, fixed, &bytes[..payload]);
                    }
                }
            }
        }
    }
    assert!(
        (0..=60)
            .filter_map(|number| fixed_len(number, true))
            .all(|len| len <= FIXED_MAX)
    );
}

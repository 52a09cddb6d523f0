//! Flags of inodes, and the operations that they forbid.

use super::calls::{self, Fd};
use super::stage::{Kind, Stage, done, listing_of};

pub(crate) const GETFLAGS: u32 = 0x8008_6601;
pub(crate) const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;

fn get(file: &Fd) -> Result<u32, calls::Errno> {
    let mut bytes = [0; 8];
    calls::ioctl(file, GETFLAGS, &mut bytes)?;
    Ok(u32::from_ne_bytes(*bytes.first_chunk().unwrap()))
}

fn set(file: &Fd, flags: u32) -> calls::Outcome {
    calls::ioctl(file, SETFLAGS, &mut u64::from(flags).to_ne_bytes())
}

fn get_fsx(file: &Fd) -> Result<[u8; 28], calls::Errno> {
    let mut bytes = [0; 28];
    calls::ioctl(file, FSGETXATTR, &mut bytes).map(|_| bytes)
}

pub(crate) fn setting(stage: &mut Stage) {
    for (name, contents, is_dir) in [
        ("file", &b""[..], false),
        ("filled", b"contents", false),
        ("dir", b"", true),
    ] {
        if is_dir {
            assert_eq!(calls::mkdir(stage.dir(), name.as_bytes(), 0o755), Ok(0))
        } else {
            drop(stage.file(name, contents))
        }
        let file = stage.open(name, libc::O_RDONLY);
        stage.note(
            format!("flags of a new {name}"),
            (get(&file), get_fsx(&file)),
        );
        let pairs = [0x404, 0x80_0004, 0x80_0400, 0x30, 0xc0, 0x1_0008, 0x80_00c8];
        for flags in (0..32).map(|bit| 1 << bit).chain(pairs) {
            let came = set(&file, flags);
            stage.note(
                format!("{name} set {flags:x}"),
                (came, get(&file), get_fsx(&file)),
            );
            stage.note(format!("{name} back"), set(&file, 0));
        }
        for flags in (0..32).map(|bit| 1u32 << bit) {
            let mut asked = [0; 28];
            asked[..4].copy_from_slice(&flags.to_ne_bytes());
            let came = calls::ioctl(&file, FSSETXATTR, &mut asked);
            stage.note(
                format!("{name} set by xfs's {flags:x}"),
                (came, get(&file), get_fsx(&file)),
            );
            let _ = calls::ioctl(&file, FSSETXATTR, &mut [0; 28]);
            let _ = set(&file, 0);
        }
        // An extent size hint, a project.
        for at in [4, 12, 16] {
            let mut asked = [0; 28];
            asked[at] = 1;
            stage.note(
                format!("{name} field {at}"),
                calls::ioctl(&file, FSSETXATTR, &mut asked),
            );
        }
        stage.note(
            format!("{name} unknown"),
            calls::ioctl(&file, 0x8008_6677, &mut [0; 8]),
        );
    }
    for kind in [Kind::LinkToFile, Kind::Fifo, Kind::Null] {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        let file = stage.open(&name, libc::O_RDONLY | libc::O_NONBLOCK);
        stage.note(
            format!("flags of {kind:?}"),
            (get(&file), set(&file, 0x40), set(&file, 0)),
        );
    }
    drop(stage.file("users", b""));
    calls::chown(stage.dir(), b"users", 1, 1, 0).unwrap();
    for user in [1, 2] {
        stage.as_user((user, user, &[]), |stage| {
            let file = stage.open("users", libc::O_RDONLY);
            for flags in [0x40, 0x10, 0x20, 0x4, 0x80_0000, 0] {
                stage.note(
                    format!("{user} sets {flags:x}"),
                    (set(&file, flags), get(&file)),
                );
            }
        });
    }
    calls::mkdir(stage.dir(), b"heir", 0o755).unwrap();
    for flags in [0x4, 0x400, 0x80_0000, 0x40, 0x80, 0x8, 0x1_0000] {
        let dir = stage.open("heir", libc::O_RDONLY);
        set(&dir, flags).unwrap();
        let file = stage.file(&format!("heir/file{flags:x}"), b"");
        calls::mkdir(dir.0, format!("dir{flags:x}").as_bytes(), 0o755).unwrap();
        let sub = stage.open(&format!("heir/dir{flags:x}"), libc::O_RDONLY);
        stage.note(format!("inherited {flags:x}"), (get(&file), get(&sub)));
        set(&dir, 0).unwrap();
    }
}

pub(crate) fn forbidding(stage: &mut Stage) {
    for (flags, what) in [(IMMUTABLE, "immutable"), (APPEND, "append-only")] {
        calls::mkdir(stage.dir(), what.as_bytes(), 0o755).unwrap();
        let at = |name: &str| format!("{what}/{name}");
        let open = stage.file(&at("file"), b"contents");
        drop(stage.file(&at("other"), b"contents"));
        calls::mkdir(stage.dir(), at("dir").as_bytes(), 0o755).unwrap();
        let dir = stage.open(&at("dir"), libc::O_RDONLY);
        drop(stage.file(&at("dir/inside"), b""));
        let handle = stage.open(&at("file"), libc::O_RDONLY);
        set(&handle, flags).unwrap();
        set(&dir, flags).unwrap();
        let here = stage.dir();
        let (file, path) = (at("file").into_bytes(), stage.path(at("file")));
        let name = |name: &str| at(name).into_bytes();
        let mut note = |doing: &str, came: String| stage.note(format!("{what}: {doing}"), came);
        for access in [
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_WRONLY | libc::O_APPEND,
            libc::O_RDONLY | libc::O_TRUNC,
        ] {
            note(
                &format!("open {access:o}"),
                done(calls::open(here, &file, access, 0)),
            );
        }
        note(
            "write by who had it open",
            done(calls::pwrite(&open, b"x", 0)),
        );
        note(
            "append by who had it open",
            done(calls::pwrite(&open, b"x", 8)),
        );
        note("cut by who had it open", done(calls::ftruncate(&open, 3)));
        note(
            "allocate by who had it open",
            done(calls::fallocate(&open, 0, 0, 100)),
        );
        note(
            "punch by who had it open",
            done(calls::fallocate(&open, 3, 0, 4)),
        );
        note("truncate", done(calls::truncate(&path, 3)));
        note("chmod", done(calls::chmod(here, &file, 0o600, 0)));
        note("chown", done(calls::chown(here, &file, 1, 1, 0)));
        note(
            "times",
            done(calls::utimens(here, Some(&file), Some([(1, 1), (1, 1)]), 0)),
        );
        note(
            "times to now",
            done(calls::utimens(here, Some(&file), None, 0)),
        );
        note("xattr", done(calls::set_xattr(&path, b"user.a", b"1", 0)));
        note(
            "trusted xattr",
            done(calls::set_xattr(&path, b"trusted.a", b"1", 0)),
        );
        note(
            "access for writing",
            done(calls::access(here, &file, libc::W_OK, 0)),
        );
        note(
            "link",
            done(calls::link((here, &file), (here, &name("link")), 0)),
        );
        note(
            "rename",
            done(calls::rename((here, &file), (here, &name("moved")), 0)),
        );
        note(
            "rename over it",
            done(calls::rename((here, &name("other")), (here, &file), 0)),
        );
        note(
            "exchange",
            done(calls::rename((here, &name("other")), (here, &file), 2)),
        );
        note("unlink", done(calls::unlink(here, &file, 0)));
        note(
            "copy to it",
            done(calls::copy_range(
                (&handle, Some(0)),
                (&open, Some(0)),
                4,
                0,
            )),
        );
        note(
            "create in the directory",
            done(calls::open(
                dir.0,
                b"new",
                libc::O_CREAT | libc::O_WRONLY,
                0o600,
            )),
        );
        note(
            "unlink in the directory",
            done(calls::unlink(dir.0, b"inside", 0)),
        );
        note(
            "rename in the directory",
            done(calls::rename((dir.0, b"inside"), (dir.0, b"moved"), 0)),
        );
        note(
            "rename out of the directory",
            done(calls::rename((dir.0, b"inside"), (here, b"out"), 0)),
        );
        note(
            "rmdir",
            done(calls::unlink(here, &name("dir"), libc::AT_REMOVEDIR)),
        );
        note(
            "rename the directory",
            done(calls::rename(
                (here, &name("dir")),
                (here, &name("dir2")),
                0,
            )),
        );
        note(
            "write to what is in the directory",
            done(calls::open(dir.0, b"inside", libc::O_WRONLY, 0)),
        );
        note(
            "tmpfile in the directory",
            done(calls::open(
                dir.0,
                b".",
                libc::O_TMPFILE | libc::O_WRONLY,
                0o600,
            )),
        );
        for (file, name) in [(&handle, "file"), (&dir, "dir")] {
            note(
                &format!("flags away of the {name}"),
                format!("{:?}", set(file, 0)),
            );
        }
        note(
            "left",
            format!("{:?} {:?}", calls::pread(&open, 100, 0), listing_of(&dir)),
        );
        // Its contents differ.
        let _ = calls::unlink(here, &file, 0);
    }
}

/// Tests large direct writes, which arrive in parts.
pub(crate) fn appending_in_parts(stage: &mut Stage) {
    const MIB: usize = 1 << 20;
    // The kernel's btrfs requires sector-aligned memory.
    let room = vec![b'x'; 5 * MIB];
    let bytes = &room[room.as_ptr().align_offset(4096)..][..4 * MIB];
    for (name, before) in [("empty", 0), ("whole", 8192), ("odd", 5)] {
        let file = stage.file(name, &vec![b'y'; before]);
        set(&file, APPEND).unwrap();
        for more in [0, libc::O_SYNC] {
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_DIRECT | more;
            let direct = stage.open(name, flags);
            for round in 0..3 {
                stage.note(
                    format!("{name} append {round} {more:x}"),
                    calls::write(&direct, bytes),
                );
            }
        }
        let plain = stage.open(name, libc::O_WRONLY | libc::O_APPEND | libc::O_SYNC);
        for len in [1, 3 * MIB + 1] {
            stage.note(
                format!("{name} append {len}"),
                calls::write(&plain, &bytes[..len]),
            );
        }
        stage.note_state(name);
        let end = calls::pread(&file, 64 * MIB, 0).unwrap();
        stage.note(
            format!("{name} contents"),
            (
                end.len(),
                end.iter().filter(|&&byte| byte == b'x').count(),
                end.iter().filter(|&&byte| byte == b'y').count(),
            ),
        );
        set(&file, 0).unwrap();
    }
}

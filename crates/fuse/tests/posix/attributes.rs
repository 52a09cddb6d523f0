//! Modes, owners and times: the rights to change them, and implicit changes.

use std::thread;
use std::time::Duration;

use super::calls::{self, Fd};
use super::stage::{Kind, Stage, done};

const OMIT: i64 = libc::UTIME_OMIT;
const NOW: i64 = libc::UTIME_NOW;
const CAPABILITY: &[u8] = b"security.capability";
/// CAP_NET_RAW, permitted and effective, in the second version of the format.
const NET_RAW: &[u8] = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

pub(crate) fn modes_and_owners(stage: &mut Stage) {
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        for flags in [0, libc::AT_SYMLINK_NOFOLLOW, 1] {
            for mode in [0o7777, 0o177_777, 0o640] {
                let came = calls::chmod(stage.dir(), name.as_bytes(), mode, flags);
                stage.note(format!("chmod {mode:o} {flags:x} {kind:?}"), came);
            }
            for (uid, gid) in [(-1, -1), (3, -1), (-1, 4), (0, 0)] {
                let came = calls::chown(stage.dir(), name.as_bytes(), uid, gid, flags);
                stage.note(format!("chown {uid}:{gid} {flags:x} {kind:?}"), came);
            }
            stage.note_state(&name);
        }
    }
    // A change of owner clears the set-id bits.
    for kind in [Kind::File, Kind::Dir, Kind::Fifo] {
        for mode in [0o6777, 0o6767, 0o4711, 0o2711, 0o2701, 0o1777] {
            for (user, uid, gid) in [
                (0, 5, -1),
                (0, -1, 5),
                (0, -1, -1),
                (0, 1, 1),
                (1, -1, 7),
                (1, 1, -1),
                (1, -1, 1),
                (1, 5, -1),
                (1, -1, 8),
                (2, -1, -1),
            ] {
                let name = format!("{kind:?}{mode:o}-{user}-{uid}-{gid}");
                kind.make(stage.dir(), &name);
                calls::chown(stage.dir(), name.as_bytes(), 1, 1, 0).unwrap();
                calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
                stage.as_user((user, user, &[7]), |stage| {
                    let came = calls::chown(stage.dir(), name.as_bytes(), uid, gid, 0);
                    stage.note(name.clone(), came);
                });
                stage.note_state(&name);
                let flags = match kind {
                    Kind::Dir => libc::AT_REMOVEDIR,
                    _ => 0,
                };
                calls::unlink(stage.dir(), name.as_bytes(), flags).unwrap();
            }
        }
    }
    // A write has the same effect, unless the writer is privileged.
    for mode in [0o6777, 0o6767, 0o2701] {
        for user in [0, 1, 2] {
            type Change = fn(&Fd) -> calls::Outcome;
            let changes: [(&str, Change); 6] = [
                ("write", |file| calls::pwrite(file, b"x", 0)),
                ("empty write", |file| calls::pwrite(file, b"", 0)),
                ("cut", |file| calls::ftruncate(file, 3)),
                ("same size", |file| calls::ftruncate(file, 8)),
                ("allocate", |file| calls::fallocate(file, 0, 0, 100)),
                ("punch", |file| calls::fallocate(file, 3, 0, 4)),
            ];
            for (what, change) in changes {
                let name = format!("{what}-{mode:o}-{user}");
                drop(stage.file(&name, b"contents"));
                calls::chown(stage.dir(), name.as_bytes(), 1, 1, 0).unwrap();
                calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
                stage.as_user((user, user, &[]), |stage| {
                    let file = calls::open(stage.dir(), name.as_bytes(), libc::O_WRONLY, 0);
                    let came = file.and_then(|file| change(&file));
                    stage.note(name.clone(), came);
                });
                stage.note_state(&name);
            }
        }
    }
    // An empty change of owner also removes a capability, unless it is refused.
    for (mode, user) in [
        (0o4755, 2),
        (0o4757, 2),
        (0o755, 2),
        (0o4755, 1),
        (0o4755, 0),
    ] {
        let name = format!("capable-{mode:o}-{user}");
        drop(stage.file(&name, b"contents"));
        calls::chown(stage.dir(), name.as_bytes(), 1, 1, 0).unwrap();
        calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
        let path = stage.path(&name);
        calls::set_xattr(&path, CAPABILITY, NET_RAW, 0).unwrap();
        stage.as_user((user, user, &[]), |stage| {
            let came = calls::chown(stage.dir(), name.as_bytes(), -1, -1, 0);
            stage.note(name.clone(), came);
        });
        stage.note_state(&name);
        let left = calls::get_xattr(&path, CAPABILITY, 100);
        stage.note(format!("capability of {name}"), left);
    }
    drop(stage.file("users", b""));
    calls::chown(stage.dir(), b"users", 1, 1, 0).unwrap();
    for (user, group, mode) in [
        (1, 1, 0o6777),
        (1, 9, 0o6777),
        (2, 1, 0o777),
        (1, 1, 0o1777),
    ] {
        stage.as_user((user, group, &[]), |stage| {
            let came = calls::chmod(stage.dir(), b"users", mode, 0);
            stage.note(format!("{user}:{group} sets {mode:o}"), came);
        });
        stage.note_state("users");
    }
}

fn shown_times(stage: &Stage, name: &[u8]) -> Vec<String> {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    let shown = calls::statx(stage.dir(), name, flags).unwrap();
    let time = |time: libc::statx_timestamp| {
        if time.tv_sec > 1_700_000_000 && time.tv_sec < 2_500_000_000 {
            "recent".to_owned()
        } else {
            format!("{}.{:09}", time.tv_sec, time.tv_nsec)
        }
    };
    vec![time(shown.stx_atime), time(shown.stx_mtime)]
}

pub(crate) fn setting_times(stage: &mut Stage) {
    let values = [
        (1_000_000_000, 123_456_789),
        (0, 0),
        (-1, 999_999_999),
        (-1_000_000_000_000, 0),
        (1 << 33, 1),
        (1 << 40, 0),
        (i64::MAX, 0),
        (i64::MIN, 0),
        (5, 1_000_000_000),
        (5, -1),
        (5, NOW),
        (5, OMIT),
    ];
    for kind in [
        Kind::File,
        Kind::Dir,
        Kind::LinkToFile,
        Kind::LinkToNothing,
        Kind::Fifo,
    ] {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        for flags in [0, libc::AT_SYMLINK_NOFOLLOW, 1] {
            for (at, value) in values.iter().enumerate() {
                let other = values[(at * 5 + 1) % values.len()];
                let times = Some([*value, other]);
                let came = calls::utimens(stage.dir(), Some(name.as_bytes()), times, flags);
                let shown = shown_times(stage, name.as_bytes());
                stage.note(
                    format!("{name} {flags:x} {value:?} {other:?}"),
                    (came, shown),
                );
            }
            let came = calls::utimens(stage.dir(), Some(name.as_bytes()), None, flags);
            stage.note(format!("{name} {flags:x} none"), came);
        }
    }
    let file = stage.file("open", b"");
    let came = calls::utimens(file.0, None, Some([(7, 0), (8, 0)]), 0);
    stage.note("by descriptor", (came, shown_times(stage, b"open")));
    let path_only = stage.open("open", libc::O_PATH);
    stage.note(
        "by a path's descriptor",
        calls::utimens(path_only.0, None, None, 0),
    );
    // The owner may set any time. Other users with write access can only set both to now.
    for (mode, name) in [(0o644, "private"), (0o666, "public")] {
        drop(stage.file(name, b""));
        calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
        calls::chown(stage.dir(), name.as_bytes(), 1, 1, 0).unwrap();
        for user in [1, 2] {
            for times in [
                None,
                Some([(0, NOW), (0, NOW)]),
                Some([(0, OMIT), (0, OMIT)]),
                Some([(0, NOW), (0, OMIT)]),
                Some([(5, 5), (0, NOW)]),
                Some([(5, 5), (6, 6)]),
            ] {
                stage.as_user((user, user, &[]), |stage| {
                    let came = calls::utimens(stage.dir(), Some(name.as_bytes()), times, 0);
                    stage.note(format!("{user} sets {times:?} of {name}"), came);
                });
            }
        }
    }
}

/// Longer than any granularity of the kernel's clocks.
const TICK: Duration = Duration::from_millis(25);

/// Checks whether an operation changes mtime and ctime of names relative to the stage.
fn moved_by(stage: &mut Stage, what: &str, names: &[&str], play: impl FnOnce(&mut Stage)) {
    let at = |stage: &Stage, name: &str| {
        let shown = calls::statx(stage.dir(), name.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
        shown.ok().map(|shown| {
            let times = [shown.stx_mtime, shown.stx_ctime, shown.stx_btime];
            times.map(|time| (time.tv_sec, time.tv_nsec))
        })
    };
    let before: Vec<_> = names.iter().map(|name| at(stage, name)).collect();
    thread::sleep(TICK);
    play(stage);
    let mut moved = Vec::new();
    for (name, before) in names.iter().zip(before) {
        let (Some(before), Some(now)) = (before, at(stage, name)) else {
            moved.push(format!("{name} comes or goes"));
            continue;
        };
        let which = ["mtime", "ctime", "btime"]
            .iter()
            .zip(before.iter().zip(now));
        let which = which.filter(|(_, (before, now))| **before != *now);
        let which: Vec<_> = which.map(|(name, _)| *name).collect();
        moved.push(format!("{name} {which:?}"));
    }
    stage.note(format!("times moved by {what}"), moved);
}

fn ok(outcome: calls::Outcome) {
    outcome.unwrap();
}

/// Ignores an outcome. Other tests check whether the call fails.
fn any(_: calls::Outcome) {}

pub(crate) fn moving_times(stage: &mut Stage) {
    let here = stage.dir();
    for name in ["a", "b"] {
        calls::mkdir(here, name.as_bytes(), 0o755).unwrap();
    }
    let file = stage.file("a/file", &[7; 20_000]);
    let other = stage.file("a/other", &[8; 20_000]);
    let names = ["a", "b", "a/file"];
    let mut play = |what: &str, play: &dyn Fn()| moved_by(stage, what, &names, |_| play());
    play("nothing", &|| {});
    play("write", &|| ok(calls::pwrite(&file, b"x", 0)));
    play("write at the end", &|| {
        ok(calls::pwrite(&file, b"x", 20_000))
    });
    play("write of nothing", &|| ok(calls::pwrite(&file, b"", 0)));
    play("cut", &|| ok(calls::ftruncate(&file, 10_000)));
    play("cut to its size", &|| ok(calls::ftruncate(&file, 10_000)));
    play("growth", &|| ok(calls::ftruncate(&file, 20_000)));
    let by_path = stage.path("a/file");
    let mut play = |what: &str, play: &dyn Fn()| moved_by(stage, what, &names, |_| play());
    play("cut by path to its size", &|| {
        ok(calls::truncate(&by_path, 20_000))
    });
    play("open that cuts", &|| {
        drop(calls::open(here, b"a/file", libc::O_WRONLY | libc::O_TRUNC, 0).unwrap());
    });
    play("open that cuts nothing", &|| {
        drop(calls::open(here, b"a/file", libc::O_WRONLY | libc::O_TRUNC, 0).unwrap());
    });
    play("cut of nothing to nothing", &|| {
        ok(calls::truncate(&by_path, 0));
    });
    play("allocate", &|| ok(calls::fallocate(&file, 0, 0, 9000)));
    play("allocate what is there", &|| {
        ok(calls::fallocate(&file, 0, 0, 9000))
    });
    play("allocate beyond", &|| {
        ok(calls::fallocate(&file, 1, 9000, 9000))
    });
    play("punch", &|| ok(calls::fallocate(&file, 3, 0, 4096)));
    play("punch of a hole", &|| {
        ok(calls::fallocate(&file, 3, 0, 4096))
    });
    play("zero", &|| ok(calls::fallocate(&file, 0x10, 0, 4096)));
    play("copy", &|| {
        ok(calls::copy_range(
            (&other, Some(0)),
            (&file, Some(0)),
            4096,
            0,
        ))
    });
    play("copy of nothing", &|| {
        any(calls::copy_range((&other, Some(0)), (&file, Some(0)), 0, 0))
    });
    play("copy from behind the end", &|| {
        any(calls::copy_range(
            (&other, Some(1 << 20)),
            (&file, Some(0)),
            4096,
            0,
        ));
    });
    play("mapped write", &|| {
        let map = calls::Map::new(
            &file,
            4096,
            libc::PROT_WRITE | libc::PROT_READ,
            libc::MAP_SHARED,
        );
        let map = map.unwrap();
        map.store(0, 9);
        map.sync(libc::MS_SYNC).unwrap();
    });
    play("read", &|| ok(calls::pread(&file, 10, 0).map(|_| 0)));
    play("sync", &|| ok(calls::fsync(&file)));
    play("chmod", &|| ok(calls::chmod(here, b"a/file", 0o600, 0)));
    play("chmod to the same", &|| {
        ok(calls::chmod(here, b"a/file", 0o600, 0))
    });
    play("chown", &|| ok(calls::chown(here, b"a/file", 1, 1, 0)));
    play("chown to the same", &|| {
        ok(calls::chown(here, b"a/file", 1, 1, 0))
    });
    play("chown of nothing", &|| {
        ok(calls::chown(here, b"a/file", -1, -1, 0))
    });
    play("utimens", &|| {
        ok(calls::utimens(
            here,
            Some(b"a/file"),
            Some([(1, 1), (1, 1)]),
            0,
        ))
    });
    play("utimens of one", &|| {
        ok(calls::utimens(
            here,
            Some(b"a/file"),
            Some([(1, 1), (0, OMIT)]),
            0,
        ));
    });
    play("utimens of none", &|| {
        ok(calls::utimens(
            here,
            Some(b"a/file"),
            Some([(0, OMIT), (0, OMIT)]),
            0,
        ));
    });
    play("xattr", &|| {
        ok(calls::set_xattr(&by_path, b"user.a", b"1", 0))
    });
    play("xattr to the same", &|| {
        ok(calls::set_xattr(&by_path, b"user.a", b"1", 0))
    });
    play("loss of an xattr", &|| {
        ok(calls::remove_xattr(&by_path, b"user.a"))
    });
    play("loss of no xattr", &|| {
        any(calls::remove_xattr(&by_path, b"user.a"))
    });
    play("flags", &|| {
        ok(calls::ioctl(
            &file,
            super::flags::SETFLAGS,
            &mut 0x40u64.to_ne_bytes(),
        ))
    });
    play("flags to the same", &|| {
        ok(calls::ioctl(
            &file,
            super::flags::SETFLAGS,
            &mut 0x40u64.to_ne_bytes(),
        ));
    });
    play("link", &|| {
        ok(calls::link((here, b"a/file"), (here, b"b/link"), 0))
    });
    play("link that fails", &|| {
        any(calls::link((here, b"a/file"), (here, b"b/link"), 0))
    });
    play("rename to another link", &|| {
        ok(calls::rename((here, b"a/file"), (here, b"b/link"), 0));
    });
    play("unlink of a link", &|| {
        ok(calls::unlink(here, b"b/link", 0))
    });
    play("mkdir", &|| ok(calls::mkdir(here, b"b/dir", 0o755)));
    play("mkdir that fails", &|| {
        any(calls::mkdir(here, b"b/dir", 0o755))
    });
    play("symlink", &|| ok(calls::symlink(b"x", here, b"b/symlink")));
    play("mknod", &|| {
        ok(calls::mknod(here, b"b/fifo", libc::S_IFIFO | 0o600, 0))
    });
    play("create", &|| {
        drop(calls::open(here, b"b/new", libc::O_CREAT | libc::O_WRONLY, 0o600).unwrap());
    });
    play("create of what is there", &|| {
        drop(calls::open(here, b"b/new", libc::O_CREAT | libc::O_WRONLY, 0o600).unwrap());
    });
    play("tmpfile", &|| {
        drop(calls::open(here, b"b", libc::O_TMPFILE | libc::O_WRONLY, 0o600).unwrap());
    });
    let names = ["a", "b", "a/file", "b/new", "b/dir", "b/symlink"];
    let mut play = |what: &str, play: &dyn Fn()| moved_by(stage, what, &names, |_| play());
    play("rename within", &|| {
        ok(calls::rename((here, b"b/fifo"), (here, b"b/pipe"), 0))
    });
    play("rename across", &|| {
        ok(calls::rename((here, b"b/pipe"), (here, b"a/pipe"), 0))
    });
    play("rename over", &|| {
        ok(calls::rename((here, b"a/pipe"), (here, b"b/symlink"), 0))
    });
    play("exchange", &|| {
        ok(calls::rename((here, b"a/file"), (here, b"b/new"), 2))
    });
    play("exchange of directories", &|| {
        calls::mkdir(here, b"a/dir", 0o755).unwrap();
        ok(calls::rename((here, b"a/dir"), (here, b"b/dir"), 2));
    });
    play("whiteout", &|| {
        ok(calls::rename((here, b"a/file"), (here, b"b/moved"), 4))
    });
    play("unlink", &|| ok(calls::unlink(here, b"b/new", 0)));
    play("rmdir", &|| {
        ok(calls::unlink(here, b"b/dir", libc::AT_REMOVEDIR))
    });
    play("rmdir that fails", &|| {
        any(calls::unlink(here, b"b", libc::AT_REMOVEDIR))
    });
    play("bind", &|| {
        let socket =
            std::os::unix::net::UnixListener::bind(format!("/proc/self/fd/{here}/b/socket"));
        drop(socket.unwrap());
    });
}

pub(crate) fn statx_fields(stage: &mut Stage) {
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        for flags in [
            0,
            libc::AT_SYMLINK_NOFOLLOW,
            libc::AT_STATX_FORCE_SYNC,
            libc::AT_STATX_DONT_SYNC,
            libc::AT_STATX_SYNC_TYPE,
            1,
        ] {
            let shown = calls::statx(stage.dir(), name.as_bytes(), flags).map(|shown| {
                let basic = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
                let born = shown.stx_btime.tv_sec >= 1_700_000_000;
                let of_device = (shown.stx_rdev_major, shown.stx_rdev_minor);
                (shown.stx_mask & basic, shown.stx_blksize, of_device, born)
            });
            stage.note(format!("statx {flags:x} {kind:?}"), shown);
        }
        let shown = calls::statx(stage.dir(), name.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
        let known = shown.map(|shown| (shown.stx_attributes, shown.stx_attributes_mask));
        stage.note(format!("attributes of {kind:?}"), known);
    }
    for (len, what) in [(100, "small"), (100_000, "large")] {
        let file = stage.file(what, &vec![1; len]);
        calls::fsync(&file).unwrap();
        let blocks = calls::statx(stage.dir(), what.as_bytes(), 0).map(|shown| shown.stx_blocks);
        stage.note(format!("blocks of a {what} file"), blocks);
    }
    calls::symlink(b"small", stage.dir(), b"link").unwrap();
    let blocks = calls::statx(stage.dir(), b"link", libc::AT_SYMLINK_NOFOLLOW);
    stage.note("blocks of a symlink", blocks.map(|shown| shown.stx_blocks));
    for name in ["", "small/", "small/x", "none/x"] {
        let came = calls::statx(stage.dir(), name.as_bytes(), 0);
        stage.note(format!("statx of {name:?}"), done(came));
    }
    stage.note(
        "statx of a bad descriptor",
        done(calls::statx(9999, b"x", 0)),
    );
}

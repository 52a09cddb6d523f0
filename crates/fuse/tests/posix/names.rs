//! Names: creating, renaming, linking and removing, for all pairs of kinds; long and unusual names.

use super::calls::{self, HERE};
use super::stage::{Kind, Stage, done, try_in};

pub(crate) fn renames(stage: &mut Stage) {
    // No flag, noreplace, exchange, whiteout, invalid combinations and an unknown flag.
    for flags in [0, 1, 2, 4, 3, 5, 6, 8] {
        for from in Kind::ALL {
            for to in Kind::ALL {
                try_in(stage, |_, dir| {
                    from.make(dir, "a");
                    to.make(dir, "b");
                    let came = calls::rename((dir, b"a"), (dir, b"b"), flags);
                    (
                        format!("rename {flags} {from:?} to {to:?}"),
                        format!("{came:?}"),
                    )
                });
            }
        }
        for kind in [Kind::File, Kind::Dir, Kind::FullDir, Kind::LinkToDir] {
            for (from, to) in [
                ("a", "a"),
                ("a", "a/"),
                ("a/", "new"),
                ("a", "new/"),
                ("a", "a/inside"),
                ("a/inside", "a"),
                ("a", "a/new"),
                (".", "new"),
                ("a/.", "new"),
                ("a/..", "new"),
                ("a", "."),
                ("a", "a/.."),
                ("a", ""),
                ("", "a"),
                ("a", "none/new"),
                ("none/a", "new"),
            ] {
                try_in(stage, |_, dir| {
                    kind.make(dir, "a");
                    let came = calls::rename((dir, from.as_bytes()), (dir, to.as_bytes()), flags);
                    (
                        format!("rename {flags} {kind:?} {from:?} to {to:?}"),
                        format!("{came:?}"),
                    )
                });
            }
        }
        try_in(stage, |_, dir| {
            Kind::File.make(dir, "a");
            calls::link((dir, b"a"), (dir, b"b"), 0).unwrap();
            let came = calls::rename((dir, b"a"), (dir, b"b"), flags);
            (
                format!("rename {flags} to another link"),
                format!("{came:?}"),
            )
        });
    }
}

pub(crate) fn links(stage: &mut Stage) {
    let flags = [0, libc::AT_SYMLINK_FOLLOW, libc::AT_EMPTY_PATH, 1];
    for flags in flags {
        for from in Kind::ALL {
            for to in [Kind::Missing, Kind::File, Kind::Dir, Kind::LinkToNothing] {
                try_in(stage, |_, dir| {
                    from.make(dir, "a");
                    to.make(dir, "b");
                    let came = calls::link((dir, b"a"), (dir, b"b"), flags);
                    (
                        format!("link {flags} {from:?} to {to:?}"),
                        format!("{came:?}"),
                    )
                });
            }
            for (name, to) in [("a/", "b"), ("a", "b/"), ("", "b"), ("a", "")] {
                try_in(stage, |_, dir| {
                    from.make(dir, "a");
                    let came = calls::link((dir, name.as_bytes()), (dir, to.as_bytes()), flags);
                    (
                        format!("link {flags} {from:?} {name:?} to {to:?}"),
                        format!("{came:?}"),
                    )
                });
            }
        }
    }
}

pub(crate) fn making_and_removing(stage: &mut Stage) {
    for kind in Kind::ALL {
        for end in ["", "/", "/.", "/.."] {
            let name = format!("x{end}");
            for flags in [0, libc::AT_REMOVEDIR, 1] {
                try_in(stage, |_, dir| {
                    kind.make(dir, "x");
                    let came = calls::unlink(dir, name.as_bytes(), flags);
                    (
                        format!("unlink {flags:x} {kind:?} {name}"),
                        format!("{came:?}"),
                    )
                });
            }
            try_in(stage, |_, dir| {
                kind.make(dir, "x");
                let came = calls::mkdir(dir, name.as_bytes(), 0o7777);
                (format!("mkdir {kind:?} {name}"), format!("{came:?}"))
            });
            try_in(stage, |_, dir| {
                kind.make(dir, "x");
                let came = calls::symlink(b"target", dir, name.as_bytes());
                (format!("symlink {kind:?} {name}"), format!("{came:?}"))
            });
            for mode in [
                0,
                libc::S_IFREG,
                libc::S_IFDIR,
                libc::S_IFLNK,
                libc::S_IFSOCK,
                0o110_000,
            ] {
                try_in(stage, |_, dir| {
                    kind.make(dir, "x");
                    let came = calls::mknod(dir, name.as_bytes(), mode | 0o7654, 0);
                    (
                        format!("mknod {mode:o} {kind:?} {name}"),
                        format!("{came:?}"),
                    )
                });
            }
        }
        try_in(stage, |_, dir| {
            kind.make(dir, "x");
            let came = [0, 1, 5, 4096].map(|room| calls::readlink(dir, b"x", room));
            (format!("readlink {kind:?}"), format!("{came:?}"))
        });
    }
    for (mode, device) in [
        (libc::S_IFCHR, 0x103),
        (libc::S_IFBLK, 0x10_0701),
        (libc::S_IFIFO, 5),
    ] {
        let name = format!("device{mode:o}");
        let made = calls::mknod(stage.dir(), name.as_bytes(), mode | 0o600, device);
        let shown = calls::statx(stage.dir(), name.as_bytes(), 0);
        let shown = shown.map(|shown| (shown.stx_rdev_major, shown.stx_rdev_minor));
        stage.note(name, (made, shown));
    }
    calls::mkdir(stage.dir(), b"free", 0o777).unwrap();
    calls::chmod(stage.dir(), b"free", 0o777, 0).unwrap();
    stage.as_user((99, 99, &[]), |stage| {
        for mode in [
            libc::S_IFREG,
            libc::S_IFCHR,
            libc::S_IFBLK,
            libc::S_IFIFO,
            libc::S_IFSOCK,
        ] {
            let name = format!("free/{mode:o}");
            let came = calls::mknod(stage.dir(), name.as_bytes(), mode | 0o600, 0x103);
            stage.note(format!("a user makes {mode:o}"), came);
        }
    });
}

/// Makes a name of `len` bytes.
fn long(len: usize) -> Vec<u8> {
    vec![b'n'; len]
}

pub(crate) fn long_and_odd(stage: &mut Stage) {
    for len in [1, 254, 255, 256, 4095, 4096, 5000] {
        let name = long(len);
        let file = calls::open(stage.dir(), &name, libc::O_CREAT | libc::O_RDWR, 0o644);
        stage.note(format!("create, {len} bytes"), done(file));
        stage.note(
            format!("mkdir, {len} bytes"),
            calls::mkdir(stage.dir(), &name, 0o755),
        );
        stage.note(format!("stat, {len} bytes"), stage.state(&name));
        let moved = calls::rename((stage.dir(), &name), (stage.dir(), b"moved"), 0);
        stage.note(format!("rename from {len} bytes"), moved);
        let moved = calls::rename((stage.dir(), b"moved"), (stage.dir(), &name), 0);
        stage.note(format!("rename to {len} bytes"), moved);
        let linked = calls::link((stage.dir(), &name), (stage.dir(), b"linked"), 0);
        stage.note(format!("link from {len} bytes"), linked);
        let _ = calls::unlink(stage.dir(), b"linked", 0);
        stage.note(
            format!("unlink, {len} bytes"),
            calls::unlink(stage.dir(), &name, 0),
        );
    }
    for len in [0, 1, 255, 1000, 3800, 4000, 4094, 4095, 4096, 5000] {
        let name = format!("link{len}");
        let made = calls::symlink(&long(len), stage.dir(), name.as_bytes());
        let read = calls::readlink(stage.dir(), name.as_bytes(), 8192).map(|target| target.len());
        stage.note(
            format!("a target of {len} bytes"),
            (made, read, stage.state(name.as_bytes())),
        );
    }
    // A path of short components that is still too long.
    let slashes = [vec![b'/'; 4090], b"x".to_vec()].concat();
    for path in [
        &slashes[..4000],
        &slashes[..4090],
        &[&slashes[..], b"12345"].concat(),
    ] {
        let came = calls::statx(HERE, path, 0).map(drop);
        stage.note(format!("a path of {} bytes", path.len()), came);
    }
    for name in [
        &b"\n"[..],
        b"\xff\xfe",
        b"a\\b",
        b" ",
        b"...",
        b"-x",
        b"\x01\x7f",
        "\u{fc}".as_bytes(),
        "u\u{308}".as_bytes(),
    ] {
        let file = calls::open(
            stage.dir(),
            name,
            libc::O_CREAT | libc::O_EXCL | libc::O_RDWR,
            0o644,
        );
        stage.note(format!("create {}", name.escape_ascii()), done(file));
    }
    stage.note("empty path", calls::statx(stage.dir(), b"", 0).map(drop));
    for (from, to) in [("./../long_and_odd/...", "x"), ("...//", "x"), (" ", "./y")] {
        let came = calls::rename(
            (stage.dir(), from.as_bytes()),
            (stage.dir(), to.as_bytes()),
            0,
        );
        stage.note(format!("rename {from} to {to}"), came);
    }
    let left = stage.listing();
    stage.note("left", left);
}

/// Tests the sticky bit, with which only owners remove names, and the set-group-id bit, with which new files get the
/// directory's group.
pub(crate) fn sticky_and_setgid(stage: &mut Stage) {
    for (owner, who) in [(0, "root's"), (1, "own"), (2, "another's")] {
        for mode in [0o777, 0o1777] {
            let dir = format!("d{owner}-{mode:o}");
            calls::mkdir(stage.dir(), dir.as_bytes(), 0o755).unwrap();
            for file in ["mine", "other", "second"] {
                drop(stage.file(&format!("{dir}/{file}"), b""));
            }
            calls::mkdir(stage.dir(), format!("{dir}/sub").as_bytes(), 0o777).unwrap();
            calls::chown(stage.dir(), format!("{dir}/mine").as_bytes(), 1, 1, 0).unwrap();
            calls::chown(stage.dir(), dir.as_bytes(), owner, 0, 0).unwrap();
            calls::chmod(stage.dir(), dir.as_bytes(), mode, 0).unwrap();
            stage.as_user((1, 1, &[]), |stage| {
                let at = |name: &str| format!("{dir}/{name}").into_bytes();
                let here = stage.dir();
                let mut note = |what: &str, came: calls::Outcome| {
                    stage.note(format!("{mode:o} in {who} directory: {what}"), came);
                };
                note(
                    "rename another's",
                    calls::rename((here, &at("other")), (here, &at("x")), 0),
                );
                note(
                    "rename over another's",
                    calls::rename((here, &at("mine")), (here, &at("second")), 0),
                );
                note(
                    "exchange",
                    calls::rename((here, &at("mine")), (here, &at("second")), 2),
                );
                note(
                    "link another's",
                    calls::link((here, &at("other")), (here, &at("y")), 0),
                );
                note("unlink another's", calls::unlink(here, &at("second"), 0));
                note(
                    "rmdir another's",
                    calls::unlink(here, &at("sub"), libc::AT_REMOVEDIR),
                );
                note("unlink own", calls::unlink(here, &at("mine"), 0));
            });
        }
    }
    calls::mkdir(stage.dir(), b"setgid", 0o755).unwrap();
    calls::chown(stage.dir(), b"setgid", 1, 7, 0).unwrap();
    calls::chmod(stage.dir(), b"setgid", 0o2777, 0).unwrap();
    for (user, name) in [
        ((0, 0, &[][..]), "root"),
        ((1, 1, &[]), "stranger"),
        ((1, 1, &[7]), "member"),
    ] {
        stage.as_user(user, |stage| {
            let at = |kind: &str| format!("setgid/{name}-{kind}");
            let file = calls::open(
                stage.dir(),
                at("file").as_bytes(),
                libc::O_CREAT | libc::O_RDWR,
                0o2775,
            );
            drop(file);
            calls::mknod(
                stage.dir(),
                at("node").as_bytes(),
                libc::S_IFREG | 0o2775,
                0,
            )
            .unwrap();
            calls::mknod(
                stage.dir(),
                at("fifo").as_bytes(),
                libc::S_IFIFO | 0o6711,
                0,
            )
            .unwrap();
            calls::mkdir(stage.dir(), at("dir").as_bytes(), 0o755).unwrap();
            calls::symlink(b"x", stage.dir(), at("symlink").as_bytes()).unwrap();
            let tmp = calls::open(
                stage.dir(),
                b"setgid",
                libc::O_TMPFILE | libc::O_RDWR,
                0o2775,
            );
            stage.note(
                format!("{name}: without a name"),
                super::stage::state_at(tmp.unwrap().0, b""),
            );
            for kind in ["file", "node", "fifo", "dir", "symlink"] {
                stage.note_state(&at(kind));
                let came = calls::chmod(stage.dir(), at(kind).as_bytes(), 0o2770, 0);
                stage.note(format!("{name}: chmod {kind}"), came);
                stage.note_state(&at(kind));
            }
        });
    }
}

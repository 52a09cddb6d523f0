//! Opening: all flags on all kinds of files, and files created without a name.

use super::calls::{self, Fd, HERE};
use super::stage::{Kind, Stage, done, state_at, try_in};

const ACCESS: [i32; 3] = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR];
const FLAGS: [(i32, &str); 6] = [
    (libc::O_CREAT, "creat"),
    (libc::O_EXCL, "excl"),
    (libc::O_TRUNC, "trunc"),
    (libc::O_DIRECTORY, "directory"),
    (libc::O_NOFOLLOW, "nofollow"),
    (libc::O_APPEND, "append"),
];

/// Describes the file of a descriptor and how it was opened.
fn opened(outcome: Result<Fd, calls::Errno>) -> String {
    match outcome {
        Err(error) => format!("{error:?}"),
        Ok(file) => {
            let flags = calls::fcntl(&file, libc::F_GETFL, 0).unwrap();
            format!("{} with {flags:o}", state_at(file.0, b""))
        }
    }
}

fn try_open(stage: &mut Stage, kind: Kind, end: &str, flags: i32, what: String) {
    try_in(stage, |_, dir| {
        kind.make(dir, "x");
        // Opening a FIFO would block until its other end is opened.
        let flags = flags | libc::O_NONBLOCK;
        let came = opened(calls::open(dir, format!("x{end}").as_bytes(), flags, 0o640));
        (format!("open {kind:?}{end} {what}"), came)
    });
}

pub(crate) fn flags(stage: &mut Stage) {
    for kind in Kind::ALL {
        for access in ACCESS {
            for bits in 0..1 << FLAGS.len() {
                let chosen = FLAGS
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| bits >> at & 1 == 1);
                let chosen: Vec<_> = chosen.map(|(_, flag)| flag).collect();
                let flags = chosen.iter().fold(access, |all, (flag, _)| all | flag);
                let names: Vec<_> = chosen.iter().map(|(_, name)| *name).collect();
                let what = format!("{access} {}", names.join(" "));
                try_open(stage, kind, "", flags, what.clone());
                if bits & !0b1001 == 0 {
                    try_open(stage, kind, "/", flags, what);
                }
            }
        }
        for (flags, what) in [
            (libc::O_ACCMODE, "no access"),
            (libc::O_PATH, "path"),
            (libc::O_PATH | libc::O_NOFOLLOW, "path nofollow"),
            (libc::O_PATH | libc::O_CREAT, "path creat"),
            (libc::O_RDWR | libc::O_SYNC, "sync"),
            (libc::O_RDONLY | libc::O_NOATIME, "noatime"),
            (libc::O_TMPFILE | libc::O_RDWR, "tmpfile"),
            (libc::O_TMPFILE | libc::O_RDONLY, "tmpfile for reading"),
            (
                libc::O_TMPFILE | libc::O_WRONLY | libc::O_CREAT,
                "tmpfile creat",
            ),
            (
                libc::O_TMPFILE | libc::O_WRONLY | libc::O_EXCL,
                "tmpfile excl",
            ),
        ] {
            try_open(stage, kind, "", flags, what.to_owned());
        }
    }
}

pub(crate) fn without_rights(stage: &mut Stage) {
    let modes = [
        0o000, 0o400, 0o200, 0o600, 0o040, 0o020, 0o004, 0o002, 0o006,
    ];
    for mode in modes {
        let name = format!("m{mode:o}");
        drop(stage.file_of(&name, b"x", 0));
        calls::chmod(stage.dir(), name.as_bytes(), mode, 0).unwrap();
        calls::chown(stage.dir(), name.as_bytes(), 1, 2, 0).unwrap();
    }
    calls::mkdir(stage.dir(), b"closed", 0o700).unwrap();
    drop(stage.file("closed/inside", b"x"));
    calls::mkdir(stage.dir(), b"unlisted", 0o711).unwrap();
    drop(stage.file("unlisted/inside", b"x"));
    for user in [
        (1, 99, &[][..]),
        (99, 2, &[]),
        (99, 98, &[2]),
        (99, 98, &[]),
    ] {
        stage.as_user(user, |stage| {
            for mode in modes {
                let name = format!("m{mode:o}");
                for flags in [
                    libc::O_RDONLY,
                    libc::O_WRONLY,
                    libc::O_RDWR,
                    libc::O_RDONLY | libc::O_TRUNC,
                    libc::O_RDONLY | libc::O_NOATIME,
                    libc::O_PATH,
                ] {
                    let came = done(calls::open(stage.dir(), name.as_bytes(), flags, 0));
                    stage.note(format!("{user:?} opens {name} {flags:o}"), came);
                }
                for wanted in [libc::R_OK, libc::W_OK, libc::X_OK] {
                    let came =
                        calls::access(stage.dir(), name.as_bytes(), wanted, libc::AT_EACCESS);
                    stage.note(format!("{user:?} may {wanted} {name}"), came);
                }
            }
            for name in [
                "closed/inside",
                "unlisted/inside",
                "closed",
                "unlisted",
                "new",
            ] {
                let flags = libc::O_RDONLY | libc::O_CREAT;
                let came = done(calls::open(stage.dir(), name.as_bytes(), flags, 0o644));
                stage.note(format!("{user:?} makes {name}"), came);
            }
            let came = done(calls::open(
                stage.dir(),
                b".",
                libc::O_TMPFILE | libc::O_RDWR,
                0o600,
            ));
            stage.note(format!("{user:?} makes a file without a name"), came);
        });
    }
    let left = stage.listing();
    stage.note("left", left);
}

pub(crate) fn tmpfiles(stage: &mut Stage) {
    let make = |stage: &Stage, flags| {
        let flags = libc::O_TMPFILE | libc::O_RDWR | flags;
        calls::open(stage.dir(), b".", flags, 0o4751).unwrap()
    };
    let by_path = |file: &Fd| format!("/proc/self/fd/{}", file.0);
    let follow = libc::AT_SYMLINK_FOLLOW;
    let file = make(stage, 0);
    calls::write(&file, b"contents").unwrap();
    stage.note("nameless", state_at(file.0, b""));
    let linked = calls::link(
        (file.0, b""),
        (stage.dir(), b"empty-path"),
        libc::AT_EMPTY_PATH,
    );
    stage.note("link by empty path", linked);
    let linked = calls::link(
        (HERE, by_path(&file).as_bytes()),
        (stage.dir(), b"by-proc"),
        follow,
    );
    stage.note("link by proc", linked);
    let again = calls::link(
        (HERE, by_path(&file).as_bytes()),
        (stage.dir(), b"by-proc"),
        follow,
    );
    stage.note("link over a name", again);
    stage.note("named twice", state_at(file.0, b""));
    for name in [&b"empty-path"[..], b"by-proc"] {
        let gone = calls::unlink(stage.dir(), name, 0);
        stage.note("unlink", (gone, state_at(file.0, b"")));
    }
    let back = calls::link(
        (HERE, by_path(&file).as_bytes()),
        (stage.dir(), b"back"),
        follow,
    );
    stage.note("link after the last name", back);
    let file = make(stage, libc::O_EXCL);
    let linked = calls::link(
        (HERE, by_path(&file).as_bytes()),
        (stage.dir(), b"excl"),
        follow,
    );
    stage.note("link of an exclusive one", linked);
    let path = by_path(&file);
    let again = calls::open(HERE, path.as_bytes(), libc::O_RDWR, 0);
    stage.note("open again", done(again));
    let left = stage.listing();
    stage.note("left", left);
}

/// Tests files whose names are removed while they are open.
pub(crate) fn unnamed(stage: &mut Stage) {
    let file = stage.file("gone", b"contents");
    calls::unlink(stage.dir(), b"gone", 0).unwrap();
    stage.note("unlinked", state_at(file.0, b""));
    stage.note("write", calls::pwrite(&file, b"more", 6));
    stage.note("chmod", calls::fchmod(&file, 0o600));
    stage.note("truncate", calls::ftruncate(&file, 7));
    stage.note("allocate", calls::fallocate(&file, 0, 0, 9000));
    stage.note("read", calls::pread(&file, 20, 0));
    stage.note("sync", calls::fsync(&file));
    let path = format!("/proc/self/fd/{}", file.0);
    let name = calls::path(path.as_bytes());
    stage.note(
        "open again",
        done(calls::open_c(HERE, &name, libc::O_RDWR, 0)),
    );
    let linked = calls::link(
        (HERE, path.as_bytes()),
        (stage.dir(), b"back"),
        libc::AT_SYMLINK_FOLLOW,
    );
    stage.note("link", linked);
    stage.note("state", state_at(file.0, b""));

    calls::mkdir(stage.dir(), b"dir", 0o755).unwrap();
    let dir = stage.open("dir", libc::O_RDONLY | libc::O_DIRECTORY);
    calls::unlink(stage.dir(), b"dir", libc::AT_REMOVEDIR).unwrap();
    stage.note("removed directory", state_at(dir.0, b""));
    let made = calls::open(dir.0, b"new", libc::O_CREAT | libc::O_RDWR, 0o644);
    stage.note("create in it", done(made));
    stage.note("mkdir in it", calls::mkdir(dir.0, b"new", 0o755));
    stage.note("symlink in it", calls::symlink(b"x", dir.0, b"new"));
    stage.note(
        "tmpfile in it",
        done(calls::open(
            dir.0,
            b".",
            libc::O_TMPFILE | libc::O_RDWR,
            0o600,
        )),
    );
    drop(stage.file("other", b""));
    stage.note(
        "rename into it",
        calls::rename((stage.dir(), b"other"), (dir.0, b"new"), 0),
    );
    stage.note(
        "link into it",
        calls::link((stage.dir(), b"other"), (dir.0, b"new"), 0),
    );
    stage.note(
        "list it",
        calls::entries(&dir, 4096).map(|found| found.len()),
    );
    stage.note("chmod it", calls::fchmod(&dir, 0o700));
    stage.note("open it", done(calls::open(dir.0, b".", libc::O_RDONLY, 0)));
    stage.note("above it", state_at(dir.0, b".."));

    drop(stage.file("replaced", b"old"));
    let old = stage.open("replaced", libc::O_RDWR);
    drop(stage.file("replacing", b"new one"));
    calls::rename((stage.dir(), b"replacing"), (stage.dir(), b"replaced"), 0).unwrap();
    stage.note("replaced", state_at(old.0, b""));
    stage.note("read the old one", calls::pread(&old, 10, 0));
    let left = stage.listing();
    stage.note("left", left);
}

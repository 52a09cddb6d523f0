//! Contents: sizes and their limits, appending, reserving and punching, holes, mapping, copying.

use super::calls::{self, Fd, HERE, Map, code, in_child};
use super::stage::{Kind, Stage, done};
use ubtrfs_sim::Rng;

const MAX: i64 = i64::MAX;

/// Describes the size of a file, and its contents unless it is too large.
fn contents(file: &Fd) -> String {
    let size = calls::seek(file, 0, libc::SEEK_END).unwrap();
    if size > 1 << 20 {
        return format!("{size} bytes");
    }
    let bytes = calls::pread(file, size as usize + 1, 0).unwrap();
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((same, count)) if *same == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    format!("{size} bytes: {runs:?}")
}

pub(crate) fn sizes(stage: &mut Stage) {
    let lens = [
        -1,
        0,
        1,
        4095,
        1 << 20,
        1 << 45,
        1 << 62,
        MAX - 1,
        MAX,
        i64::MIN,
    ];
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        let path = stage.path(&name);
        for len in lens {
            let came = calls::truncate(&path, len);
            stage.note(
                format!("truncate {kind:?} to {len}"),
                (came, stage.state(name.as_bytes())),
            );
        }
        for flags in [
            libc::O_RDONLY,
            libc::O_PATH,
            libc::O_RDWR,
            libc::O_WRONLY | libc::O_APPEND,
        ] {
            let opened = calls::open(stage.dir(), name.as_bytes(), flags | libc::O_NONBLOCK, 0);
            let came = opened.and_then(|file| calls::ftruncate(&file, 5));
            stage.note(format!("ftruncate {kind:?} {flags:o}"), came);
        }
    }
    let file = stage.file("file", b"0123456789");
    for (offset, len) in [
        (-1, 1),
        (0, 0),
        (1 << 40, 5),
        (1 << 62, 1),
        (MAX - 1, 1),
        (MAX - 1, 5),
        (MAX, 1),
        (MAX, 0),
        (i64::MIN, 1),
    ] {
        let came = calls::pwrite(&file, &vec![b'x'; len], offset);
        stage.note(
            format!("write {len} at {offset}"),
            (came, stage.state(b"file")),
        );
        let read = calls::pread(&file, 3, offset);
        stage.note(format!("read at {offset}"), read);
        let _ = calls::ftruncate(&file, 10);
    }
    for (offset, whence) in [
        (-1, libc::SEEK_SET),
        (MAX, libc::SEEK_SET),
        (1, libc::SEEK_END),
        (-11, libc::SEEK_END),
        (MAX, libc::SEEK_END),
        (-20, libc::SEEK_CUR),
        (0, 99),
        (-1, libc::SEEK_DATA),
        (-1, libc::SEEK_HOLE),
        (0, libc::SEEK_DATA),
        (0, libc::SEEK_HOLE),
        (9, libc::SEEK_DATA),
        (9, libc::SEEK_HOLE),
        (10, libc::SEEK_DATA),
        (10, libc::SEEK_HOLE),
        (MAX, libc::SEEK_DATA),
    ] {
        stage.note(
            format!("seek {offset} {whence}"),
            calls::seek(&file, offset, whence),
        );
    }
    let reading = stage.open("file", libc::O_RDONLY);
    stage.note("write to what is read", calls::pwrite(&reading, b"x", 0));
    stage.note(
        "write nothing to what is read",
        calls::pwrite(&reading, b"", 0),
    );
    let dir = stage.open(".", libc::O_RDONLY);
    stage.note("read a directory", calls::pread(&dir, 10, 0));
    stage.note("truncate a directory", calls::ftruncate(&dir, 0));
    stage.note("sync a directory", calls::fsync(&dir));
    let path_only = stage.open("file", libc::O_PATH);
    stage.note("sync a path", calls::fsync(&path_only));
}

pub(crate) fn appending(stage: &mut Stage) {
    drop(stage.file("file", b"start"));
    let file = stage.open("file", libc::O_RDWR | libc::O_APPEND);
    stage.note("write", calls::write(&file, b"-one"));
    stage.note("write at 0", calls::pwrite(&file, b"-two", 0));
    stage.note("write far off", calls::pwrite(&file, b"-three", 1 << 30));
    // RWF_NOAPPEND, RWF_APPEND, both, RWF_DSYNC, RWF_NOWAIT on a write, and an unknown flag.
    for flags in [0x20, 0x10, 0x30, 0x2, 0x1000] {
        stage.note(
            format!("write with {flags:x}"),
            calls::pwritev2(&file, b"#", 0, flags),
        );
        stage.note("contents", contents(&file));
    }
    stage.note("position", calls::seek(&file, 0, libc::SEEK_CUR));
    stage.note("cut", calls::ftruncate(&file, 3));
    stage.note("write after the cut", calls::write(&file, b"+"));
    stage.note("contents", contents(&file));
    stage.note("flag away", calls::fcntl(&file, libc::F_SETFL, 0));
    stage.note("write at 1", calls::pwrite(&file, b"!", 1));
    let plain = stage.open("file", libc::O_RDWR);
    stage.note("appended by call", calls::pwritev2(&plain, b"!", 0, 0x10));
    stage.note("contents", contents(&file));
    for (offset, len) in [(0, 4096), (1, 4096), (0, 100), (512, 512), (4096, 4096)] {
        let direct = stage.open("file", libc::O_RDWR | libc::O_DIRECT);
        let came = calls::pwrite(&direct, &vec![b'd'; len], offset);
        stage.note(
            format!("direct write of {len} at {offset}"),
            (came, contents(&plain)),
        );
        let read = calls::pread(&direct, len, offset).map(|bytes| bytes.len());
        stage.note(format!("direct read of {len} at {offset}"), read);
    }
}

pub(crate) fn allocation(stage: &mut Stage) {
    let ranges = [
        (0, 0),
        (0, -1),
        (-1, 1),
        (-5, 10),
        (0, 5000),
        (100, 100),
        (4096, 4096),
        (5000, 9000),
        (15_000, 1),
        (20_000, 4096),
        (MAX, 1),
        (MAX - 10, 11),
        (1 << 60, 4096),
        (0, 1 << 50),
    ];
    for mode in 0..0x80 {
        for (offset, len) in ranges {
            // Only a few modes, as all of these are refused.
            if mode > 0x10
                && mode != 0x40
                && mode != 0x41
                && mode != 0x48
                && (offset, len) != (4096, 4096)
            {
                continue;
            }
            let file = stage.file("file", &[b'c'; 10_000]);
            let came = calls::fallocate(&file, mode, offset, len);
            let what = format!("fallocate {mode:x} {offset} {len}");
            stage.note(what, (came, contents(&file), holes(&file)));
            calls::unlink(stage.dir(), b"file", 0).unwrap();
        }
    }
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        for flags in [
            libc::O_RDONLY,
            libc::O_RDWR,
            libc::O_PATH,
            libc::O_WRONLY | libc::O_APPEND,
        ] {
            for mode in [0, 1, 3, 0x10, 0x20] {
                let opened = calls::open(stage.dir(), name.as_bytes(), flags | libc::O_NONBLOCK, 0);
                let came = opened.and_then(|file| calls::fallocate(&file, mode, 0, 4096));
                stage.note(format!("fallocate {mode:x} {kind:?} {flags:o}"), came);
            }
        }
    }
}

/// Returns the starts of data and holes.
fn holes(file: &Fd) -> Vec<(i64, char)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(data) = calls::seek(file, at, libc::SEEK_DATA) {
        let Ok(hole) = calls::seek(file, data, libc::SEEK_HOLE) else {
            found.push((data, '!'));
            break;
        };
        found.extend([(data, 'd'), (hole, 'h')]);
        at = hole;
        if found.len() > 200 {
            break;
        }
    }
    found
}

fn holes_are_zeros(file: &Fd) -> bool {
    let bytes = calls::pread(file, 1 << 20, 0).unwrap();
    let mut at = 0;
    for (place, kind) in holes(file) {
        let place = (place as usize).min(bytes.len());
        if kind == 'd' && bytes[at..place].iter().any(|&byte| byte != 0) {
            return false;
        }
        at = place;
    }
    bytes[at..].iter().all(|&byte| byte == 0)
}

/// Makes random changes of data and holes, and checks all offsets after each. At edges within sectors the kernel stores
/// zeros where we keep a hole. Then only the bytes of the hole are checked.
pub(crate) fn holes_and_data(stage: &mut Stage) {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let file = stage.file(&format!("file{seed}"), b"");
        let most = [70_000, 9000, 300_000][seed as usize % 3];
        let is_exact = seed % 2 == 0;
        let grain = if is_exact { 4096 } else { 1 };
        let place = |rng: &mut Rng| (rng.below(most) / grain * grain) as i64;
        for step in 0..25 {
            let (a, b) = (place(&mut rng), place(&mut rng));
            let (offset, len) = (a.min(b), (a - b).abs().max(1));
            let len = (len as u64).next_multiple_of(grain) as i64;
            let short = len.min((1 + rng.below(9000)).next_multiple_of(grain) as i64);
            let (what, came) = match rng.below(9) {
                0 | 1 => (
                    "write",
                    calls::pwrite(&file, &vec![b'w'; short as usize], offset),
                ),
                2 => ("reserve", calls::fallocate(&file, 0, offset, len)),
                3 => ("reserve beyond", calls::fallocate(&file, 1, offset, len)),
                4 => ("punch", calls::fallocate(&file, 3, offset, len)),
                5 => ("zero", calls::fallocate(&file, 0x10, offset, len)),
                6 => ("truncate", calls::ftruncate(&file, offset)),
                7 => ("sync", calls::fsync(&file)),
                _ => (
                    "truncate far",
                    calls::ftruncate(&file, (most as i64 - offset) / grain as i64 * grain as i64),
                ),
            };
            let size = calls::seek(&file, 0, libc::SEEK_END).unwrap();
            let mut around: Vec<i64> = [
                0,
                1,
                2047,
                2048,
                4095,
                4096,
                4097,
                size - 4097,
                size - 1,
                size,
                size + 1,
            ]
            .to_vec();
            around.extend((0..8).map(|_| place(&mut rng)));
            around.retain(|&at| at >= 0);
            let around: Vec<_> = around
                .into_iter()
                .map(|at| {
                    (
                        at,
                        calls::seek(&file, at, libc::SEEK_DATA),
                        calls::seek(&file, at, libc::SEEK_HOLE),
                    )
                })
                .collect();
            let what = format!("seed {seed} step {step}: {what} {offset} {len} {short}");
            if is_exact {
                stage.note(what, (came, holes(&file), around))
            } else {
                stage.note(what, (came, size, contents(&file), holes_are_zeros(&file)))
            }
        }
    }
}

pub(crate) fn maps(stage: &mut Stage) {
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    drop(stage.file("file", &[b'm'; 5000]));
    for access in [
        libc::O_RDONLY,
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_RDWR | libc::O_APPEND,
        libc::O_PATH,
    ] {
        let file = stage.open("file", access);
        for how in [
            libc::MAP_SHARED,
            libc::MAP_PRIVATE,
            libc::MAP_SHARED_VALIDATE,
            0,
        ] {
            for wanted in [0, read, write, read | write, read | libc::PROT_EXEC] {
                let came = done(Map::new(&file, 8192, wanted, how));
                stage.note(format!("map {access:o} {how:x} {wanted:x}"), came);
            }
        }
        let empty = done(Map::new(&file, 0, read, libc::MAP_SHARED));
        stage.note(format!("map nothing {access:o}"), empty);
    }
    for kind in [Kind::Dir, Kind::Fifo, Kind::Null] {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        let file = stage.open(&name, libc::O_RDONLY | libc::O_NONBLOCK);
        stage.note(
            format!("map {kind:?}"),
            done(Map::new(&file, 4096, read, libc::MAP_PRIVATE)),
        );
    }
    let file = stage.open("file", libc::O_RDWR);
    let map = Map::new(&file, 16_384, read | write, libc::MAP_SHARED).unwrap();
    for at in [0, 4999, 5000, 8191, 8192, 16_383] {
        stage.note(
            format!("load at {at}"),
            in_child(|| i32::from(map.load(at) == 255)),
        );
        stage.note(
            format!("store at {at}"),
            in_child(|| {
                map.store(at, b'M');
                0
            }),
        );
    }
    stage.note("sync", map.sync(libc::MS_SYNC));
    stage.note("contents", contents(&file));
    calls::ftruncate(&file, 9000).unwrap();
    stage.note(
        "behind the old end",
        (map.load(4999), map.load(5000), map.load(8191)),
    );
    stage.note(
        "grown",
        in_child(|| {
            map.store(8500, b'G');
            0
        }),
    );
    stage.note("contents", contents(&file));
    calls::ftruncate(&file, 100).unwrap();
    stage.note(
        "load behind the cut",
        in_child(|| i32::from(map.load(4096))),
    );
    calls::ftruncate(&file, 9000).unwrap();
    stage.note(
        "grown again",
        (map.load(99), map.load(100), map.load(4999), map.load(8500)),
    );
    map.store(4096, b'X');
    stage.note("read what was stored", calls::pread(&file, 2, 4095));
    stage.note(
        "write below a mapping",
        calls::pwrite(&file, b"written", 4096),
    );
    stage.note("load it", (map.load(4096), map.load(4102)));
    stage.note(
        "punch below a mapping",
        calls::fallocate(&file, 3, 4096, 4096),
    );
    stage.note("load it", (map.load(4096), map.load(4102)));
    map.store(4100, b'Y');
    stage.note("holes", holes(&file));
    let private = Map::new(&file, 4096, read | write, libc::MAP_PRIVATE).unwrap();
    private.store(0, b'P');
    stage.note(
        "a private store",
        (private.load(0), calls::pread(&file, 1, 0)),
    );
    stage.note(
        "unlink below a mapping",
        calls::unlink(stage.dir(), b"file", 0),
    );
    map.store(1, b'Z');
    drop((file, private));
    stage.note("load from what has no name", (map.load(1), map.load(4100)));
}

/// ioctl numbers as literals, which are the same on x86 and ARM.
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;

pub(crate) fn copies(stage: &mut Stage) {
    let source = stage.file("source", &[b's'; 20_000]);
    let lens = [0, 1, 4096, 20_000, 1 << 40, usize::MAX];
    for from in [
        Some(0),
        Some(4096),
        Some(19_999),
        Some(20_000),
        Some(-1),
        Some(MAX),
        None,
    ] {
        for to in [
            Some(0),
            Some(4096),
            Some(100),
            Some(30_000),
            Some(-1),
            Some(MAX),
            None,
        ] {
            for len in lens {
                let target = stage.file("target", &[b't'; 10_000]);
                calls::seek(&source, 5, libc::SEEK_SET).unwrap();
                let came = calls::copy_range((&source, from), (&target, to), len, 0);
                let what = format!("copy {len} from {from:?} to {to:?}");
                let at = calls::seek(&source, 0, libc::SEEK_CUR);
                stage.note(what, (came, at, contents(&target)));
                calls::unlink(stage.dir(), b"target", 0).unwrap();
            }
        }
    }
    for (from, to, len) in [
        (0, 4096, 4096),
        (0, 4096, 4097),
        (4096, 0, 5000),
        (0, 0, 10),
        (0, 20_000, 20_000),
        (8192, 4096, 8192),
    ] {
        let file = stage.file("same", &[b'x'; 20_000]);
        calls::pwrite(&file, b"head", 0).unwrap();
        let came = calls::copy_range((&file, Some(from)), (&file, Some(to)), len, 0);
        stage.note(
            format!("copy {len} within from {from} to {to}"),
            (came, contents(&file)),
        );
        calls::unlink(stage.dir(), b"same", 0).unwrap();
    }
    let target = stage.file("target", b"");
    for flags in [1, 2, 0x8000_0000] {
        stage.note(
            format!("copy with {flags:x}"),
            calls::copy_range((&source, Some(0)), (&target, Some(0)), 10, flags),
        );
    }
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        kind.make(stage.dir(), &name);
        for flags in [
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR | libc::O_APPEND,
            libc::O_PATH,
        ] {
            let Ok(other) = calls::open(stage.dir(), name.as_bytes(), flags | libc::O_NONBLOCK, 0)
            else {
                continue;
            };
            let from = calls::copy_range((&other, None), (&target, Some(0)), 4, 0);
            stage.note(format!("copy from {kind:?} {flags:o}"), from);
            let to = calls::copy_range((&source, Some(0)), (&other, None), 4, 0);
            stage.note(format!("copy to {kind:?} {flags:o}"), to);
        }
    }
    // A hole stays a hole, or becomes zeros: reads return the same.
    let sparse = stage.file("sparse", b"");
    calls::ftruncate(&sparse, 1 << 20).unwrap();
    calls::pwrite(&sparse, b"island", 500_000).unwrap();
    let copied = calls::copy_range((&sparse, Some(0)), (&target, Some(0)), 1 << 20, 0);
    stage.note("copy of a sparse file", (copied, contents(&target)));
    clones(stage, &source, &target);
    // Linux has cloned on one side only.
    calls::unlink(stage.dir(), b"target", 0).unwrap();
}

fn clones(stage: &mut Stage, source: &Fd, target: &Fd) {
    for (what, file) in [("itself", target), ("another", source)] {
        stage.note(
            format!("clone of {what}"),
            calls::ioctl_number(target, FICLONE, file.0),
        );
    }
    stage.note(
        "clone of nothing",
        calls::ioctl_number(target, FICLONE, 9999),
    );
    let dir = stage.open(".", libc::O_RDONLY);
    stage.note(
        "clone of a directory",
        calls::ioctl_number(target, FICLONE, dir.0),
    );
    stage.note(
        "clone to a directory",
        calls::ioctl_number(&dir, FICLONE, source.0),
    );
    let reading = stage.open("target", libc::O_RDONLY);
    stage.note(
        "clone to what is read",
        calls::ioctl_number(&reading, FICLONE, source.0),
    );
    for (from, len, to) in [
        (0, 4096, 0),
        (1, 4096, 0),
        (0, 100, 0),
        (0, 0, 4096),
        (1 << 40, 4096, 0),
        (4096, 1 << 40, 0),
    ] {
        let numbers = [i64::from(source.0), from, len, to];
        let mut argument: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        let came = calls::ioctl(target, FICLONERANGE, &mut argument);
        stage.note(format!("clone of {len} from {from} to {to}"), came);
    }
}

pub(crate) fn locks(stage: &mut Stage) {
    let (get, set) = (libc::F_GETLK, libc::F_SETLK);
    let (get_ofd, set_ofd) = (libc::F_OFD_GETLK, libc::F_OFD_SETLK);
    let (read, write, none) = (libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK);
    let file = stage.file("file", b"0123456789");
    let path = stage.path("file");
    let by_other = |command, kind, start, len| {
        in_child(|| {
            let other = calls::open_c(HERE, &path, libc::O_RDWR, 0);
            code(other.and_then(|other| calls::lock(&other, command, kind, start, len).0))
        })
    };
    for (kind, start, len) in [
        (write, 2, 4),
        (read, 0, 0),
        (write, 0, 0),
        (none, 3, 1),
        (read, 8, 100),
        (none, 0, 0),
        (write, -1, 2),
        (write, 5, -3),
    ] {
        stage.note(
            format!("lock {kind} {start} {len}"),
            calls::lock(&file, set, kind, start, len).0,
        );
        for (wanted, start, len) in [
            (read, 0, 2),
            (read, 2, 1),
            (write, 3, 1),
            (write, 9, 0),
            (read, 0, 0),
        ] {
            let came = by_other(set, wanted, start, len);
            stage.note(format!("another's lock {wanted} {start} {len}"), came);
            let came = by_other(set_ofd, wanted, start, len);
            stage.note(format!("another's open lock {wanted} {start} {len}"), came);
        }
        stage.note("asked by oneself", calls::lock(&file, get, write, 0, 0));
    }
    calls::lock(&file, set, write, 0, 0).0.unwrap();
    stage.note("held", by_other(set, read, 0, 1));
    drop(stage.open("file", libc::O_RDONLY));
    stage.note("lost with any descriptor", by_other(set, read, 0, 1));
    let second = stage.open("file", libc::O_RDWR);
    stage.note("open lock", calls::lock(&file, set_ofd, write, 0, 5).0);
    stage.note("second one", calls::lock(&second, set_ofd, read, 0, 1).0);
    stage.note(
        "second one beside",
        calls::lock(&second, set_ofd, read, 5, 1).0,
    );
    stage.note(
        "asked by the second",
        calls::lock(&second, get_ofd, write, 0, 0),
    );
    drop(stage.open("file", libc::O_RDONLY));
    stage.note("kept", by_other(set, read, 0, 1));
    drop(file);
    stage.note("gone with its own", by_other(set, read, 0, 1));
    let reading = stage.open("file", libc::O_RDONLY);
    let path_only = stage.open("file", libc::O_PATH);
    let dir = stage.open(".", libc::O_RDONLY);
    stage.note(
        "write lock of what is read",
        calls::lock(&reading, set, write, 0, 1).0,
    );
    stage.note("of a directory", calls::lock(&dir, set, read, 0, 1).0);
    stage.note("of a path", calls::lock(&path_only, set, read, 0, 1).0);

    let by_other = |operation| {
        in_child(|| {
            let other = calls::open_c(HERE, &path, libc::O_RDONLY, 0);
            code(other.and_then(|other| calls::flock(&other, operation | libc::LOCK_NB)))
        })
    };
    for mine in [
        libc::LOCK_SH,
        libc::LOCK_EX,
        libc::LOCK_UN,
        0,
        libc::LOCK_SH | libc::LOCK_EX,
    ] {
        stage.note(format!("flock {mine}"), calls::flock(&second, mine));
        for theirs in [libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_UN] {
            stage.note(format!("another's flock {theirs}"), by_other(theirs));
        }
    }
    calls::flock(&second, libc::LOCK_EX).unwrap();
    let copy = calls::fcntl(&second, libc::F_DUPFD_CLOEXEC, 0).map(|number| Fd(number as i32));
    drop(second);
    stage.note("kept by a copy", by_other(libc::LOCK_SH));
    drop(copy);
    stage.note("gone with the copy", by_other(libc::LOCK_SH));
    stage.note("flock of a directory", calls::flock(&dir, libc::LOCK_EX));
    stage.note("flock of a path", calls::flock(&path_only, libc::LOCK_SH));
}

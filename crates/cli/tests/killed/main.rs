//! The process that serves a mount is killed under load, many times. Synced data is complete, both checkers
//! find no error, and the kernel shows the same files.
//!
//! UBTRFS_SOAK: 100 times; otherwise only a few. UBTRFS_SEED: the seed.

mod databases;
mod fixture;
mod postgresql;
mod sqlite;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use io_uring::{IoUring, opcode, types};
use rustix::fs::{IFlags, OFlags, copy_file_range, ioctl_setflags};
use rustix::process::{Pid, Signal, kill_process};
use ubtrfs_sim::{Rng, with_roots_rights};

use fixture::{Bench, churn, expect_success, is_soak, seed, ubtrfs};

const WRITERS: u64 = 3;
/// Files that are checked after each kill; older ones are checked at the end.
const RECENT: usize = 200;

/// A file whose fsync returned before that of its directory.
#[derive(Clone, Debug)]
struct Synced {
    name: String,
    seed: u64,
    len: usize,
}

impl Synced {
    fn contents(&self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut bytes = vec![0; self.len];
        // Half of it compresses.
        for chunk in bytes.chunks_mut(64) {
            let word = rng.next_u64().to_le_bytes();
            for (at, byte) in chunk.iter_mut().enumerate() {
                *byte = if at < 32 { word[at % 8] } else { 0x20 };
            }
        }
        bytes
    }

    fn check(&self, dir: &Path, by: &str) {
        let found = fs::read(dir.join(&self.name))
            .unwrap_or_else(|error| panic!("{by}: {}: {error}", self.name));
        let wanted = self.contents();
        let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
        assert!(
            found.len() == wanted.len() && differs.is_none(),
            "{by}: {self:?} has {} bytes, differs at {differs:?}",
            found.len()
        );
    }
}

/// Returns the mount options of a round. Two of four rounds do not use io_uring, as on kernels without it.
/// Two use a log, which keeps synced data longer.
fn options_of(round: u64) -> &'static str {
    match round % 4 {
        0 => "commit=1,notreelog",
        1 => "commit=3",
        2 => "commit=1,notreelog,transport=classic",
        _ => "commit=3,transport=classic",
    }
}

/// Asserts that the kernel also shows the files.
fn ask_kernel(bench: &Bench, files: &[Synced]) {
    bench.on_kernel(|dir| {
        for file in files {
            file.check(dir, "kernel");
        }
    });
}

/// Creates a file that is durable when this returns. There are several methods.
fn make_durable(path: &Path, contents: &[u8], way: u64) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    if way == 0 {
        options.custom_flags(OFlags::SYNC.bits().cast_signed());
    }
    let mut made = options.open(path)?;
    if way == 1 {
        ioctl_setflags(&made, IFlags::SYNC)?;
    }
    made.write_all(contents)?;
    match way {
        0 | 1 => Ok(()),
        _ => made.sync_all(),
    }
}

/// Creates files, optionally syncs each, and reports them, until the mount or the receiver is gone.
fn write_and_report(
    dir: &Path,
    prefix: &str,
    mut rng: Rng,
    sender: &Sender<Synced>,
    is_synced: bool,
) {
    for number in 0u64.. {
        // For an empty file there is no write, so the flag to sync writes would have no effect.
        let len = 1 + match rng.below(4) {
            0 => rng.below(3000),
            1 => rng.below(70_000),
            _ => rng.below(300_000),
        };
        let file = Synced {
            name: format!("{prefix}-{number}"),
            seed: rng.next_u64(),
            len: len as usize,
        };
        let path = dir.join(&file.name);
        let made = if is_synced {
            make_durable(&path, &file.contents(), rng.below(4))
        } else {
            fs::write(&path, file.contents())
        };
        if made.is_err() || sender.send(file).is_err() {
            return;
        }
    }
}

/// Works until `enough` files were synced, and kills the server while the work continues.
fn work_and_kill(bench: &Bench, mut server: Child, round: u64, rng: &mut Rng) -> Vec<Synced> {
    let dir = bench.mountpoint();
    let enough = 5 + rng.below(40) as usize;
    let is_over = AtomicBool::new(false);
    let mut synced = Vec::new();
    thread::scope(|scope| {
        let (sender, heard) = channel();
        for writer in 0..WRITERS {
            let (sender, rng, dir) = (sender.clone(), Rng::new(rng.next_u64()), &dir);
            scope.spawn(move || {
                write_and_report(dir, &format!("r{round}-w{writer}"), rng, &sender, true);
            });
        }
        drop(sender);
        let churner = Rng::new(rng.next_u64());
        let (dir, is_over) = (&dir, &is_over);
        scope.spawn(move || churn(dir, &format!("r{}", round % 3), churner, is_over));
        synced.extend(heard.iter().take(enough));
        server.kill().unwrap();
        server.wait().unwrap();
        is_over.store(true, Ordering::Relaxed);
        // Files whose sync returned before the kill count as well.
        synced.extend(heard.iter());
    });
    assert!(
        synced.len() >= enough,
        "writers gave up after {}",
        synced.len()
    );
    synced
}

/// Works in directories that are kept open, asks the server to end, continues for a while, and closes them.
fn work_and_terminate(bench: &Bench, mut server: Child, round: u64, rng: &mut Rng) -> Vec<Synced> {
    let enough = 10 + rng.below(60) as usize;
    let is_over = AtomicBool::new(false);
    let mut written = Vec::new();
    thread::scope(|scope| {
        let (sender, heard) = channel();
        for user in 0..=WRITERS {
            let held = File::open(bench.mountpoint()).unwrap();
            let dir = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
            let (sender, rng, is_over) = (sender.clone(), Rng::new(rng.next_u64()), &is_over);
            scope.spawn(move || {
                match user {
                    0 => churn(&dir, &format!("r{}", round % 3), rng, is_over),
                    _ => write_and_report(&dir, &format!("r{round}-w{user}"), rng, &sender, false),
                }
                drop(held);
            });
        }
        drop(sender);
        written.extend(heard.iter().take(enough));
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        while bench.is_mounted() {
            thread::yield_now();
        }
        written.extend(heard.iter().take(enough));
        is_over.store(true, Ordering::Relaxed);
        written.extend(heard.try_iter());
        drop(heard);
    });
    assert!(server.wait().unwrap().success());
    written
}

#[test]
fn a_server_that_is_asked_to_end_serves_its_users_to_the_end_and_loses_nothing() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let seed = seed();
    let rounds = if is_soak() { 30 } else { 3 };
    let mut rng = Rng::new(seed);
    let bench = Bench::new();
    for round in 0..rounds {
        let server = bench.serve_with(options_of(round));
        let written = work_and_terminate(&bench, server, round, &mut rng);
        bench.check();
        ask_kernel(&bench, &written);
        let server = bench.serve_with(options_of(round));
        for file in &written {
            file.check(&bench.mountpoint(), "next mount");
            fs::remove_file(bench.mountpoint().join(&file.name)).unwrap();
        }
        bench.end(server);
    }
}

#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let seed = seed();
    let rounds = if is_soak() { 100 } else { 4 };
    let mut rng = Rng::new(seed);
    let bench = Bench::new();
    let mut synced: Vec<Synced> = Vec::new();
    for round in 0..rounds {
        let server = bench.serve_with(options_of(round));
        let recent = synced.len().saturating_sub(RECENT);
        for file in &synced[recent..] {
            file.check(&bench.mountpoint(), "next mount");
        }
        // Make room for new files.
        for old in synced.drain(..recent) {
            fs::remove_file(bench.mountpoint().join(&old.name)).unwrap();
        }
        let more = work_and_kill(&bench, server, round, &mut rng);
        assert!(
            File::open(bench.mountpoint().join("any")).is_err(),
            "no process serves the mount"
        );
        bench.umount();
        bench.check();
        synced.extend(more);
        ask_kernel(&bench, &synced);
    }
}

/// A method of changing a file, durable when it returns. It returns the resulting contents.
type Change = fn(&Path) -> Vec<u8>;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Creates a durable file with the flag of `chattr +S`.
fn flagged(path: &Path) -> File {
    fs::write(path, b"before").unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    ioctl_setflags(&file, IFlags::SYNC).unwrap();
    file.sync_all().unwrap();
    file
}

const FLAGGED: &[(&str, Change)] = &[
    ("new", |path| {
        let contents = pattern(3 << 20);
        make_durable(path, &contents, 1).unwrap();
        contents
    }),
    ("overwritten", |path| {
        flagged(path).write_all_at(b"BEF", 0).unwrap();
        b"BEFore".to_vec()
    }),
    ("appended", |path| {
        drop(flagged(path));
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(&pattern(2 << 20)).unwrap();
        [b"before".to_vec(), pattern(2 << 20)].concat()
    }),
    ("directly", |path| {
        drop(flagged(path));
        let mut options = File::options();
        options.write(true);
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        let file = options.open(path).unwrap();
        file.write_all_at(&pattern(3 << 20), 0).unwrap();
        pattern(3 << 20)
    }),
    ("copied", |path| copied(path, &flagged(path))),
];

fn copied(path: &Path, to: &File) -> Vec<u8> {
    let source = path.with_extension("source");
    fs::write(&source, pattern(100_000)).unwrap();
    let source = File::open(&source).unwrap();
    source.sync_all().unwrap();
    let (mut from, mut at) = (0, 0);
    while copy_file_range(&source, Some(&mut from), to, Some(&mut at), 100_000).unwrap() > 0 {}
    pattern(100_000)
}

/// Copies a file that is opened with these flags.
fn copied_by(path: &Path, flags: OFlags) -> Vec<u8> {
    let mut options = File::options();
    options.write(true).create(true);
    options.custom_flags(flags.bits().cast_signed());
    copied(path, &options.open(path).unwrap())
}

#[test]
fn a_copy_is_durable_when_it_returns_where_writes_are() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let bench = Bench::new();
    for options in ["sync,transport=auto", "sync,transport=classic"] {
        let plain: Change = |path| copied_by(path, OFlags::empty());
        assert_durable(&bench, options, "plain", plain);
    }
    let synced: Change = |path| copied_by(path, OFlags::DSYNC);
    assert_durable(&bench, "opens", "synced", synced);
    bench.check();
}

/// Makes a change on a mount, kills its server, and checks the file.
fn assert_durable(bench: &Bench, options: &str, name: &str, change: Change) {
    let mut server = bench.serve_with(&format!("commit=300,{options}"));
    let path = bench.mountpoint().join(format!("{name}-{options}"));
    let wanted = change(&path);
    server.kill().unwrap();
    server.wait().unwrap();
    bench.umount();
    let server = bench.serve_with("commit=1");
    let found = fs::read(&path).unwrap_or_default();
    let len = found.len();
    assert!(found == wanted, "{name}, {options}: {len} bytes");
    bench.end(server);
}

#[test]
fn a_file_with_the_flag_for_it_is_durable_when_a_write_returns() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let bench = Bench::new();
    for transport in ["auto", "classic"] {
        for (name, change) in FLAGGED {
            assert_durable(&bench, &format!("transport={transport}"), name, *change);
        }
    }
    bench.check();
}

/// Writes in parts. All are started before this waits for the first.
#[allow(unsafe_code)]
fn write_without_waiting(path: &Path, flags: OFlags, contents: &[u8]) {
    const PART_BYTES: usize = 2 << 20;
    let mut options = File::options();
    options.write(true).create(true);
    options.custom_flags(flags.bits().cast_signed());
    let file = options.open(path).unwrap();
    let mut ring = IoUring::new(8).unwrap();
    let parts = contents.chunks(PART_BYTES);
    let count = parts.len();
    for (number, part) in parts.enumerate() {
        let write = opcode::Write::new(
            types::Fd(file.as_raw_fd()),
            part.as_ptr(),
            part.len().try_into().unwrap(),
        );
        let write = write.offset((number * PART_BYTES) as u64).build();
        // SAFETY: the file and its contents stay alive until all writes are completed.
        unsafe { ring.submission().push(&write.user_data(part.len() as u64)) }.unwrap();
    }
    ring.submit_and_wait(count).unwrap();
    for done in ring.completion() {
        assert_eq!(u64::try_from(done.result()), Ok(done.user_data()));
    }
}

fn unwaited(path: &Path, flags: OFlags) -> Vec<u8> {
    let contents = pattern((5 << 20) + 4096);
    write_without_waiting(path, flags, &contents);
    contents
}

const UNWAITED: &[(&str, Change)] = &[
    ("direct-dsync", |path| {
        unwaited(path, OFlags::DIRECT | OFlags::DSYNC)
    }),
    ("direct-sync", |path| {
        unwaited(path, OFlags::DIRECT | OFlags::SYNC)
    }),
    ("cached-dsync", |path| unwaited(path, OFlags::DSYNC)),
    ("overwritten", |path| {
        let mut contents = unwaited(path, OFlags::DIRECT | OFlags::DSYNC);
        contents[..8192].fill(b'o');
        write_without_waiting(path, OFlags::DIRECT | OFlags::DSYNC, &contents[..8192]);
        contents
    }),
];

const UNWAITED_ON_SYNC: &[(&str, Change)] = &[
    ("direct", |path| unwaited(path, OFlags::DIRECT)),
    ("cached", |path| unwaited(path, OFlags::empty())),
];

#[test]
fn a_write_that_nobody_waits_for_is_durable_when_it_is_completed() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    if let Err(error) = IoUring::new(1) {
        ubtrfs_sim::skip_optional(format_args!("no io_uring: {error}"));
        return;
    }
    let bench = Bench::new();
    for options in ["transport=auto", "transport=classic", "opens", "writeback"] {
        for (name, change) in UNWAITED {
            assert_durable(&bench, options, name, *change);
        }
        for (name, change) in UNWAITED_ON_SYNC {
            assert_durable(&bench, &format!("sync,{options}"), name, *change);
        }
    }
    bench.check();
}

/// An operation: its name, its action in a directory with `file` and `dir/inside`, and the resulting entries.
type Naming = (&'static str, fn(&Path), &'static [&'static str]);

const NAMING: &[Naming] = &[
    (
        "create",
        |dir| drop(File::create(dir.join("new")).unwrap()),
        &["dir", "dir/inside", "file", "new"],
    ),
    (
        "mkdir",
        |dir| fs::create_dir(dir.join("dir/new")).unwrap(),
        &["dir", "dir/inside", "dir/new", "file"],
    ),
    (
        "symlink",
        |dir| symlink("nowhere", dir.join("new")).unwrap(),
        &["dir", "dir/inside", "file", "new"],
    ),
    (
        "link",
        |dir| fs::hard_link(dir.join("file"), dir.join("dir/new")).unwrap(),
        &["dir", "dir/inside", "dir/new", "file"],
    ),
    (
        "unlink",
        |dir| fs::remove_file(dir.join("file")).unwrap(),
        &["dir", "dir/inside"],
    ),
    (
        "rmdir",
        |dir| {
            fs::remove_file(dir.join("dir/inside")).unwrap();
            fs::remove_dir(dir.join("dir")).unwrap();
        },
        &["file"],
    ),
    (
        "rename",
        |dir| fs::rename(dir.join("dir/inside"), dir.join("file")).unwrap(),
        &["dir", "file"],
    ),
    (
        "subvolume delete",
        |dir| {
            subvolume("create", &[dir.join("doomed")]);
            subvolume("delete", &[dir.join("doomed")]);
        },
        &["dir", "dir/inside", "file"],
    ),
    (
        "subvolume create",
        |dir| subvolume("create", &["-p".into(), dir.join("new/sub")]),
        &["dir", "dir/inside", "file", "new", "new/sub"],
    ),
    (
        "subvolume snapshot",
        |dir| {
            subvolume("create", &[dir.join("dir/sub")]);
            fs::write(dir.join("dir/sub/file"), "inside").unwrap();
            subvolume("snapshot", &[dir.join("dir/sub"), dir.join("new")]);
        },
        &[
            "dir",
            "dir/inside",
            "dir/sub",
            "dir/sub/file",
            "file",
            "new",
            "new/file",
        ],
    ),
];

/// Changes a subvolume with a command that the server runs.
fn subvolume(verb: &str, args: &[PathBuf]) {
    let made = ubtrfs().args(["-q", "subvolume", verb]).args(args).output();
    expect_success(verb, &made.unwrap());
}

fn names_below(dir: &Path, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_below(&entry.path(), &format!("{name}/")));
        }
        names.push(name);
    }
    names.sort();
    names
}

#[test]
fn with_dirsync_a_change_of_names_is_durable_when_it_returns() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let bench = Bench::new();
    for options in ["transport=auto", "transport=classic", "opens"] {
        for (name, change, left) in NAMING {
            let mut server =
                bench.serve_with(&with_roots_rights(&format!("commit=300,dirsync,{options}")));
            let dir = bench.mountpoint().join(format!("{name}-{options}"));
            fs::create_dir_all(dir.join("dir")).unwrap();
            for file in ["file", "dir/inside"] {
                fs::write(dir.join(file), file).unwrap();
            }
            change(&dir);
            server.kill().unwrap();
            server.wait().unwrap();
            bench.umount();
            let server = bench.serve_with("commit=1");
            assert_eq!(names_below(&dir, ""), *left, "{name}, {options}");
            bench.end(server);
        }
    }
    bench.check();
}

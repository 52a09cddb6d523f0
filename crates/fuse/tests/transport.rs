//! Real mounts of a file system in memory, over each transport that works here. They cover the behaviour under load,
//! when requests have to wait, and when clients or the connection die.

mod idle;
#[path = "../../../benches/transport/src/instant.rs"]
mod instant;
#[path = "../../../benches/transport/src/switch.rs"]
mod switch;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags, statx};
use rustix::mount::UnmountFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use ubtrfs_fuse::mount::{
    IfBusy, MountError, Options, Session, TransportChoice, UnmountError, mount_file_system, unmount,
};

use ubtrfs_fuse_server::request::NodeId;
use ubtrfs_sim::{is_root_or_skip, skip, skip_optional};

use self::idle::unmount_once_idle;
use self::instant::{Gate, Instant, Manners, State};
use self::switch::with_uring;

struct Mounted {
    dir: tempfile::TempDir,
    session: Session,
    gate: Arc<Gate>,
    state: Arc<Mutex<State>>,
    transport: TransportChoice,
}

impl Mounted {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open_gate(&self) {
        *self.gate.open.lock() = true;
        self.gate.opened.notify_all();
    }

    fn unmount(mut self) {
        self.open_gate();
        unmount_once_idle(&mut self.session);
    }
}

fn manners() -> Manners {
    Manners {
        writeback_cache: false,
        create: true,
    }
}

/// Mounts over each transport. Returns nothing if this user cannot mount at all.
fn mounts(manners: Manners) -> impl Iterator<Item = Mounted> {
    [TransportChoice::Classic, TransportChoice::Uring]
        .into_iter()
        .filter_map(move |transport| {
            let dir = tempfile::tempdir().unwrap();
            let file_system = Instant::new(manners);
            let gate = Arc::clone(&file_system.gate);
            let state = Arc::clone(&file_system.state);
            let options = Options {
                transport,
                ..Options::default()
            };
            let source = Path::new("instant");
            let mount = || mount_file_system(file_system, source, dir.path(), &options);
            let mounted = with_uring(transport == TransportChoice::Uring, mount)
                .map_err(|error| skip_optional(format_args!("no FUSE over io_uring: {error}")));
            match mounted.ok()? {
                Ok(session) => Some(Mounted {
                    dir,
                    session,
                    gate,
                    state,
                    transport,
                }),
                Err(
                    error @ (MountError::NoFuse
                    | MountError::NoHelper
                    | MountError::OpenFuse(_)
                    | MountError::Helper(_)),
                ) => {
                    skip(format_args!("cannot mount here: {error}"));
                    None
                }
                Err(error) => panic!("{transport:?}: {error}"),
            }
        })
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

/// Binds the calling thread, and threads that it starts, to one CPU.
fn run_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();
}

/// Starts a process that reads a file.
fn reader(path: &Path) -> Child {
    Command::new("cat")
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn write_new(path: &Path, bytes: &[u8]) {
    File::create_new(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn every_kind_of_request_does_what_its_system_call_says() {
    for writeback_cache in [false, true] {
        for create in [false, true] {
            let manners = Manners {
                writeback_cache,
                create,
            };
            for mounted in mounts(manners) {
                exercise(&mounted);
                mounted.unmount();
            }
        }
    }
}

fn exercise(mounted: &Mounted) {
    let path = mounted.path("file");
    let long: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
    write_new(&path, &long);
    assert!(File::create_new(&path).is_err());
    assert_eq!(fs::read(&path).unwrap(), long);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.write_all_at(b"changed", 1_000_000).unwrap();
    file.seek(SeekFrom::Start(999_999)).unwrap();
    let mut part = [0; 9];
    file.read_exact(&mut part).unwrap();
    assert_eq!(&part[1..8], b"changed");
    file.sync_all().unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().size(), 5);
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), long[..5]);
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().size(), 0);

    fs::create_dir(mounted.path("dir")).unwrap();
    fs::rename(&path, mounted.path("dir/moved")).unwrap();
    assert!(fs::metadata(&path).is_err());
    std::os::unix::fs::symlink("dir/moved", mounted.path("link")).unwrap();
    assert_eq!(
        fs::read_link(mounted.path("link")).unwrap(),
        Path::new("dir/moved")
    );
    fs::set_permissions(
        mounted.path("link"),
        std::os::unix::fs::PermissionsExt::from_mode(0o640),
    )
    .unwrap();
    let stat = fs::metadata(mounted.path("dir/moved")).unwrap();
    assert_eq!(stat.mode(), 0o100_640);

    let path = mounted.path("dir/moved");
    let value = vec![b'v'; 5000];
    rustix::fs::setxattr(&path, "user.long", &value, XattrFlags::empty()).unwrap();
    let mut out = vec![0; 5001];
    let len = rustix::fs::getxattr(&path, "user.long", &mut out[..]).unwrap();
    assert_eq!(out[..len], value);
    assert_eq!(
        rustix::fs::getxattr(&path, "user.long", &mut [0; 10][..]),
        Err(rustix::io::Errno::RANGE)
    );
    let len = rustix::fs::listxattr(&path, &mut out[..]).unwrap();
    assert_eq!(&out[..len], b"user.long\0");

    let born = statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert_eq!(born.stx_btime.tv_sec, 1_700_000_000);
    assert!(rustix::fs::statvfs(mounted.dir.path()).unwrap().f_bavail > 0);
    fs::remove_file(&path).unwrap();
    fs::remove_file(mounted.path("link")).unwrap();
    fs::remove_dir(mounted.path("dir")).unwrap();
}

#[test]
fn direct_reads_and_writes_of_a_mebibyte_arrive_whole() {
    for mounted in mounts(manners()) {
        let path = mounted.path("direct");
        let len = 4 << 20;
        // O_DIRECT requires page-aligned memory.
        let mut memory = vec![0u8; len + 4096];
        let begin = memory.as_ptr().align_offset(4096);
        for (at, byte) in memory[begin..][..len].iter_mut().enumerate() {
            *byte = (at % 253) as u8;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(&path)
            .unwrap();
        file.write_all_at(&memory[begin..][..len], 0).unwrap();
        let mut back = vec![0u8; len + 4096];
        let at = back.as_ptr().align_offset(4096);
        file.read_exact_at(&mut back[at..][..len], 0).unwrap();
        assert!(memory[begin..][..len] == back[at..][..len]);
        drop(file);
        mounted.unmount();
    }
}

#[test]
fn a_big_directory_is_listed_whole_and_names_in_it_are_found() {
    for mounted in mounts(manners()) {
        let count = 30_000;
        fs::create_dir(mounted.path("big")).unwrap();
        for number in 0..count {
            File::create_new(mounted.path(&format!("big/name-{number}"))).unwrap();
        }
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(mounted.path("big")).unwrap() {
            assert!(names.insert(entry.unwrap().file_name()));
        }
        assert_eq!(names.len(), count);
        mounted.unmount();
    }
}

#[test]
fn sixteen_threads_do_not_see_each_other() {
    for mounted in mounts(Manners {
        writeback_cache: true,
        create: true,
    }) {
        thread::scope(|scope| {
            for worker in 0..16u64 {
                let dir = mounted.path(&format!("worker-{worker}"));
                scope.spawn(move || churn(&dir, worker));
            }
        });
        assert_eq!(fs::read_dir(mounted.dir.path()).unwrap().count(), 0);
        mounted.unmount();
    }
}

/// Creates, changes, renames, lists and removes the worker's own files.
fn churn(dir: &Path, worker: u64) {
    fs::create_dir(dir).unwrap();
    for round in 0..60u64 {
        let path = dir.join(format!("file-{round}"));
        let bytes: Vec<u8> = (0..=worker * 1777 + round * 311)
            .map(|at| (at + worker + round) as u8)
            .collect();
        write_new(&path, &bytes);
        let moved = dir.join(format!("moved-{round}"));
        fs::rename(&path, &moved).unwrap();
        assert_eq!(fs::read(&moved).unwrap(), bytes);
        if round % 3 == 0 {
            File::open(&moved).unwrap().sync_all().unwrap();
        }
        if round % 2 == 0 {
            fs::remove_file(&moved).unwrap();
        }
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 30);
    fs::remove_dir_all(dir).unwrap();
}

/// CLASSIC-1, QUEUE-1 and SLOT-1
#[test]
fn requests_that_wait_hold_no_other_up() {
    const WAITING: usize = 60;
    for mounted in mounts(manners()) {
        // One file each, because the kernel serializes syncs of a file.
        let slow = |number| mounted.path(&format!("slow-{number}"));
        for number in 0..WAITING {
            write_new(&slow(number), b"late");
        }
        // Puts all requests on one CPU, and so in one queue.
        let cpus = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu));
        run_on(first.unwrap());
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..WAITING)
                .map(|number| {
                    let slow = slow(number);
                    scope.spawn(move || {
                        // The kernel has up to 32 direct reads in flight at once.
                        if number >= 24 {
                            File::open(&slow).unwrap().sync_all().unwrap();
                        } else {
                            let file = OpenOptions::new()
                                .read(true)
                                .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
                                .open(&slow)
                                .unwrap();
                            let mut memory = vec![0u8; 8192];
                            let at = memory.as_ptr().align_offset(4096);
                            assert_eq!(file.read_at(&mut memory[at..][..4096], 0).unwrap(), 4);
                        }
                    })
                })
                .collect();
            wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) >= WAITING);
            for number in 0..100 {
                write_new(&mounted.path(&format!("quick-{number}")), b"now");
            }
            assert!(waiting.iter().all(|thread| !thread.is_finished()));
            mounted.open_gate();
        });
        sched_setaffinity(None, &cpus).unwrap();
        if mounted.transport == TransportChoice::Uring {
            // The direct reads; requests that always block are not even tried.
            assert!(mounted.gate.refused.load(Ordering::SeqCst) >= 24);
        }
        mounted.unmount();
    }
}

#[test]
fn written_pages_that_wait_for_a_device_hold_no_other_request_up() {
    for mounted in mounts(Manners {
        writeback_cache: true,
        create: true,
    }) {
        let file = File::create_new(mounted.path("stuck")).unwrap();
        thread::scope(|scope| {
            // The kernel throttles the writer after many writes.
            let writer = scope.spawn(|| {
                file.write_all_at(&vec![1; 64 << 20], 0).unwrap();
                file.sync_all().unwrap();
            });
            wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) >= 20);
            // The kernel sends a request to the queue of the client's CPU.
            let cpus = sched_getaffinity(None).unwrap();
            for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)) {
                run_on(cpu);
                for number in 0..100 {
                    let path = mounted.path(&format!("quick-{number}"));
                    File::create_new(&path).unwrap();
                    fs::metadata(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                }
            }
            assert!(!writer.is_finished());
            sched_setaffinity(None, &cpus).unwrap();
            mounted.open_gate();
        });
        drop(file);
        mounted.unmount();
    }
}

/// CLASSIC-2
#[test]
fn nothing_of_the_file_system_is_left_after_an_unmount() {
    for mounted in mounts(manners()) {
        let slow = |number| mounted.path(&format!("slow-{number}"));
        let mut clients: Vec<Child> = (0..20)
            .map(|number| {
                write_new(&slow(number), b"late");
                reader(&slow(number))
            })
            .collect();
        wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) >= 20);
        mounted.open_gate();
        for client in &mut clients {
            assert!(client.wait().unwrap().success());
        }
        // The file system has one reference, and each thread has the file system.
        let state = Arc::clone(&mounted.state);
        mounted.unmount();
        assert_eq!(Arc::strong_count(&state), 1);
    }
}

#[test]
fn a_client_killed_while_it_waits_is_gone_and_the_mount_lives_on() {
    for mounted in mounts(manners()) {
        let slow = mounted.path("slow");
        write_new(&slow, b"late");
        let mut client = reader(&slow);
        wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) >= 1);
        client.kill().unwrap();
        write_new(&mounted.path("other"), b"x");
        assert_eq!(fs::read(mounted.path("other")).unwrap(), b"x");
        mounted.open_gate();
        client.wait().unwrap();
        assert_eq!(fs::read(&slow).unwrap(), b"late");
        mounted.unmount();
    }
}

#[test]
fn an_aborted_connection_ends_with_requests_under_way() {
    if !is_root_or_skip() {
        return;
    }
    for mounted in mounts(manners()) {
        let slow = mounted.path("slow");
        write_new(&slow, b"late");
        let mut client = reader(&slow);
        wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) >= 1);
        // For a mount in use this only ends the connection.
        let is_gone = rustix::mount::unmount(mounted.dir.path(), UnmountFlags::FORCE).is_ok();
        assert!(!client.wait().unwrap().success());
        mounted.open_gate();
        assert!(fs::metadata(&slow).is_err());
        if !is_gone {
            unmount(mounted.dir.path(), IfBusy::Detach).unwrap();
        }
        assert!(matches!(
            mounted.session.wait(),
            Ok(()) | Err(MountError::Connection(_))
        ));
    }
}

#[test]
fn names_that_the_kernel_is_told_to_forget_are_asked_for_again() {
    for mounted in mounts(manners()) {
        let path = mounted.path("file");
        write_new(&path, b"old");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let number = fs::metadata(&path).unwrap().ino();
        let notifier = mounted.gate.notifier.lock().clone().unwrap();
        // Contents change outside of the mount, as through a control socket.
        mounted
            .state
            .lock()
            .nodes
            .get_mut(&number)
            .unwrap()
            .contents = b"new".to_vec();
        notifier.node_changed(NodeId(number), Some((0, None)));
        wait_until(|| fs::read(&path).unwrap() == b"new");
        mounted.state.lock().take(NodeId::ROOT, b"file").unwrap();
        assert!(fs::metadata(&path).is_ok());
        notifier.entry_deleted(NodeId::ROOT, b"file", NodeId(number));
        wait_until(|| fs::metadata(&path).is_err());
        // More than are queued one by one.
        for other in 0..10_000u64 {
            notifier.entry_changed(NodeId::ROOT, other.to_string().as_bytes());
            notifier.node_changed(NodeId(other + (1 << 40)), None);
        }
        mounted.unmount();
    }
}

#[test]
fn the_kernel_says_which_bytes_it_has_cached() {
    const PAGE: usize = 4096;
    for mounted in mounts(manners()) {
        let path = mounted.path("file");
        let contents = [[b'a'; PAGE], [b'b'; PAGE]].concat();
        write_new(&path, &contents[..PAGE + 100]);
        assert_eq!(fs::read(&path).unwrap().len(), PAGE + 100);
        let node = NodeId(fs::metadata(&path).unwrap().ino());
        let notifier = mounted.gate.notifier.lock().clone().unwrap();
        for (offset, len) in [(0, PAGE), (10, PAGE), (PAGE, 100), (PAGE + 90, 10)] {
            let cached = notifier.cached(node, offset as u64, len as u32);
            assert_eq!(cached.unwrap(), contents[offset..][..len]);
        }
        let behind = notifier.cached(node, PAGE as u64, PAGE as u32).unwrap();
        assert_eq!(behind, contents[PAGE..][..100], "up to the size");
        assert_eq!(notifier.cached(NodeId(1 << 50), 0, 1), None);
        assert!(notifier.drop_pages_here(node, (0, None)));
        assert_eq!(notifier.cached(node, 0, PAGE as u32), Some(Vec::new()));
        mounted.unmount();
    }
}

/// Opens the gate on drop.
struct Opener<'a>(&'a Mounted);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open_gate();
    }
}

/// Cache coherence depends on this (`docs/design/kernel-caches.md`).
#[test]
fn the_kernel_locks_a_page_for_a_write_of_a_part_only_if_the_page_is_not_up_to_date() {
    const PAGE: usize = 4096;
    for mounted in mounts(manners()) {
        let path = mounted.path("stuck");
        mounted.open_gate();
        write_new(&path, &[b'o'; PAGE]);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let node = NodeId(file.metadata().unwrap().ino());
        let notifier = mounted.gate.notifier.lock().clone().unwrap();
        for (is_up_to_date, bytes) in [(false, b"one"), (true, b"two")] {
            assert!(notifier.drop_pages_here(node, (0, None)));
            if is_up_to_date {
                file.read_exact_at(&mut [0; PAGE], 0).unwrap();
            }
            *mounted.gate.open.lock() = false;
            let before = mounted.gate.waiters.load(Ordering::SeqCst);
            thread::scope(|scope| {
                // Also after a failure, because the write would be waited for without end.
                let _opener = Opener(&mounted);
                let write = scope.spawn(|| file.write_all_at(bytes, 10).unwrap());
                wait_until(|| mounted.gate.waiters.load(Ordering::SeqCst) > before);
                // The page already has the bytes. The kernel returns only pages that are up to date.
                let cached = notifier.cached(node, 10, 3).unwrap();
                assert_eq!(cached, if is_up_to_date { &bytes[..] } else { b"" });
                let drop_pages = notifier.drop_pages(node, (0, None), Box::new(|| {}));
                if is_up_to_date {
                    assert!(drop_pages.wait(Duration::from_secs(60)));
                    assert_eq!(notifier.cached(node, 10, 3), Some(Vec::new()));
                    // A read that is served before the write brings the old bytes back.
                    file.read_exact_at(&mut [0; PAGE], 0).unwrap();
                    assert_eq!(notifier.cached(node, 10, 3).unwrap(), b"one");
                } else {
                    wait_until(|| drop_pages.is_asleep());
                    assert!(!drop_pages.wait(Duration::ZERO));
                }
                assert!(!write.is_finished());
                mounted.open_gate();
                write.join().unwrap();
                assert!(drop_pages.wait(Duration::from_secs(60)));
            });
        }
        drop(file);
        mounted.unmount();
    }
}

#[test]
fn mounts_below_outlast_any_number_of_news() {
    if !is_root_or_skip() {
        return;
    }
    for mounted in mounts(manners()) {
        let path = mounted.path("file");
        write_new(&path, b"covered");
        let over = tempfile::NamedTempFile::new().unwrap();
        fs::write(over.path(), "over").unwrap();
        rustix::mount::mount_bind(over.path(), &path).unwrap();
        let notifier = mounted.gate.notifier.lock().clone().unwrap();
        for other in 0..50_000u64 {
            notifier.entry_changed(NodeId::ROOT, other.to_string().as_bytes());
        }
        assert!(notifier.drain(None));
        assert_eq!(fs::read(&path).unwrap(), b"over");
        rustix::mount::unmount(&path, UnmountFlags::empty()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"covered");
        mounted.unmount();
    }
}

#[test]
fn dropped_lookups_are_counted_down() {
    for mounted in mounts(manners()) {
        for number in 0..200 {
            write_new(&mounted.path(&format!("f{number}")), b"");
        }
        for number in 0..200 {
            fs::remove_file(mounted.path(&format!("f{number}"))).unwrap();
        }
        wait_until(|| mounted.gate.forgotten.load(Ordering::SeqCst) >= 200);
        mounted.unmount();
    }
}

#[test]
fn unmounting_under_load_ends_in_order() {
    for mounted in mounts(manners()) {
        write_new(&mounted.path("lasting"), b"");
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..4 {
                let (dir, done) = (mounted.dir.path(), &done);
                scope.spawn(move || {
                    // Runs until the mount is gone: then names are looked up in the directory below it.
                    while fs::metadata(dir.join("lasting")).is_ok() {
                        let path = dir.join(format!("w{worker}"));
                        if fs::write(&path, b"x").is_ok() {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            wait_until(|| done.load(Ordering::Relaxed) > 50);
            unmount(mounted.dir.path(), IfBusy::Detach).unwrap();
        });
        mounted.session.wait().unwrap();
    }
}

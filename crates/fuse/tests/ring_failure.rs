//! Failure of an io_uring queue during service. Runs in its own process, because it replaces a ring of the mount.
#![allow(unsafe_code)]

#[path = "../../../benches/transport/src/instant.rs"]
mod instant;
#[path = "../../../benches/transport/src/switch.rs"]
mod switch;

use std::fs::{self, File};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use ubtrfs_fuse::mount::{MountError, Options, TransportChoice, mount_file_system, mount_table};

use self::instant::{Instant, Manners};
use self::switch::with_uring;

/// No step here takes a hundredth of this time.
const HANGING: Duration = Duration::from_secs(60);

/// Replaces the descriptor of one of our rings, so that it fails.
fn break_a_ring() {
    let ring = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .find(|entry| {
            fs::read_link(entry.path())
                .is_ok_and(|file| file.to_string_lossy().ends_with("[io_uring]"))
        });
    let number = ring.unwrap().file_name().into_string().unwrap();
    let other = File::open("/dev/null").unwrap();
    // SAFETY: the descriptor still belongs to its owner, and is not closed here.
    let mut ring = unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) };
    rustix::io::dup2(&other, &mut ring).unwrap();
    std::mem::forget(ring);
}

/// Sends requests from every CPU, so that each queue gets one, until a request is not answered.
fn ask_everywhere(dir: &Path) -> std::io::Error {
    let all = sched_getaffinity(None).unwrap();
    for number in 0.. {
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)) {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).unwrap();
            if let Err(error) = File::create_new(dir.join(format!("{number}-{cpu}"))) {
                return error;
            }
        }
    }
    unreachable!()
}

fn within<T>(heard: &Receiver<T>) -> T {
    heard.recv_timeout(HANGING).expect("it hangs")
}

/// QUEUE-2 and QUEUE-3
#[test]
fn a_queue_that_fails_ends_the_connection_with_all_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let file_system = Instant::new(Manners {
        writeback_cache: false,
        create: true,
    });
    let gate = Arc::clone(&file_system.gate);
    let options = Options {
        transport: TransportChoice::Uring,
        ..Options::default()
    };
    let source = Path::new("instant");
    let session = match with_uring(true, || {
        mount_file_system(file_system, source, &path, &options)
    }) {
        Ok(Ok(session)) => session,
        refused => {
            ubtrfs_sim::skip_optional(format_args!("cannot mount over io_uring: {refused:?}"));
            return;
        }
    };
    // One request is blocked in the pool.
    fs::write(path.join("slow"), b"late").unwrap();
    let mut waiting = Command::new("cat")
        .arg(path.join("slow"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while gate.waiters.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    break_a_ring();
    let (sender, heard) = channel();
    let asked = path.clone();
    thread::spawn(move || {
        let error = ask_everywhere(&asked);
        sender.send((error, waiting.wait().unwrap())).unwrap();
    });
    let (error, reader) = within(&heard);
    assert!(
        matches!(
            rustix::io::Errno::from_io_error(&error),
            Some(rustix::io::Errno::CONNABORTED | rustix::io::Errno::NOTCONN)
        ),
        "{error}"
    );
    assert!(!reader.success());
    *gate.open.lock() = true;
    gate.opened.notify_all();
    let (sender, heard) = channel();
    thread::spawn(move || sender.send(session.wait()).unwrap());
    let ended = within(&heard);
    assert!(matches!(ended, Err(MountError::Connection(_))), "{ended:?}");
    let table = mount_table().unwrap();
    assert!(table.iter().all(|entry| entry.mountpoint != path));
}

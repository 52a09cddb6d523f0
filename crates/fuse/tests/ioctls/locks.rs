//! A call that waits in the kernel does not block unrelated calls.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{IFlags, SeekFrom};
use rustix::io::Errno;
use ubtrfs_sim::kernel::or_skip;

use super::raw::*;
use super::with_ours;

const LASTS: Duration = Duration::from_secs(4);
/// Longer than a call takes on a slow machine, and shorter than anybody waits for an event that cannot happen.
const LONG: Duration = Duration::from_secs(12);

/// Runs `play` repeatedly with the number of the round, and returns the longest duration.
fn longest(mut play: impl FnMut(u64)) -> Duration {
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for round in 0.. {
        let at = Instant::now();
        if at - begun >= LASTS {
            break;
        }
        play(round);
        longest = longest.max(at.elapsed());
    }
    longest
}

fn sparse(path: &Path) {
    let file = match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return,
        file => file.unwrap(),
    };
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"data", 512 << 10).unwrap();
}

/// The kernel holds the lock of a file while it searches for holes or sets flags. It takes a directory's lock when it
/// is notified of a name in it. unlink(2) holds the directory's lock and waits for the file's.
#[test]
fn searches_for_holes_wait_for_no_news_of_names() {
    if !or_skip("searches_for_holes_wait_for_no_news_of_names") {
        return;
    }
    for words in ["", "transport=classic", "opens"] {
        with_ours(words, |top| {
            let dir = &top.join("dir");
            fs::create_dir(dir).unwrap();
            let (f, g) = (&dir.join("f"), &dir.join("g"));
            let taken = thread::scope(|scope| {
                let searches = scope.spawn(move || {
                    longest(|_| {
                        let Ok(file) = File::options().read(true).write(true).open(f) else {
                            return;
                        };
                        match rustix::fs::seek(&file, SeekFrom::Hole(0)) {
                            Ok(_) | Err(Errno::NXIO) => {}
                            Err(error) => panic!("{words}: {error}"),
                        }
                    })
                });
                let flags = scope.spawn(move || {
                    longest(|round| {
                        let Ok(file) = File::open(g) else { return };
                        let flags = [IFlags::NODUMP, IFlags::empty()];
                        rustix::fs::ioctl_setflags(&file, flags[round as usize % 2]).unwrap();
                    })
                });
                let unlinks = scope.spawn(move || {
                    longest(|_| {
                        for path in [f, g] {
                            sparse(path);
                            fs::remove_file(path).unwrap();
                        }
                    })
                });
                let subvolumes = scope.spawn(move || {
                    let open = File::open(dir).unwrap();
                    longest(|_| {
                        ask(&open, SUBVOL_CREATE, &named(b"sub")).unwrap();
                        ask(&open, SNAP_DESTROY, &named(b"sub")).unwrap();
                    })
                });
                [searches, flags, unlinks, subvolumes].map(|call| call.join().unwrap())
            });
            assert!(taken.iter().all(|time| *time < LONG), "{words}: {taken:?}");
        });
    }
}

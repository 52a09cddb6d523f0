//! `statfs` returns the same on our mount as on the kernel's mount of the same volume, with either as its writer.

mod served;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, statvfs, syncfs};
use rustix::io::Errno;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, Profile, or_skip};

use self::served::Served;

/// Not a test: the process that serves the mounts of the test below.
#[test]
#[ignore = "run by another test"]
fn serving_process() {
    served::serve();
}

/// All fields except the id, which FUSE cannot return, and the mount's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    block_bytes: [u64; 2],
    blocks: u64,
    free: u64,
    available: u64,
    files: [u64; 3],
    name_max: u64,
}

impl Shown {
    fn of(dir: &Path) -> Shown {
        let shown = statvfs(dir).unwrap();
        Shown {
            block_bytes: [shown.f_bsize, shown.f_frsize],
            blocks: shown.f_blocks,
            free: shown.f_bfree,
            available: shown.f_bavail,
            files: [shown.f_files, shown.f_ffree, shown.f_favail],
            name_max: shown.f_namemax,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Level {
    Empty,
    Half,
    Full,
}

fn fill(dir: &Path, level: Level) {
    if !matches!(level, Level::Empty) {
        for number in 0..500 {
            File::create(dir.join(format!("{number:0200}"))).unwrap();
        }
    }
    let big = File::create(dir.join("big")).unwrap();
    // Linux sends no syncfs to a FUSE server without a block device. Our mounts commit at fsync here (`notreelog`).
    let sync = || {
        big.sync_all().unwrap();
        syncfs(&big).unwrap();
    };
    sync();
    let add = |from: u64, len: u64| fallocate(&big, FallocateFlags::empty(), from, len);
    let shown = Shown::of(dir);
    match level {
        Level::Empty => {}
        Level::Half => add(0, shown.available * shown.block_bytes[0] / 2).unwrap(),
        Level::Full => {
            let mut end = 0;
            for step in [64 << 20, 4 << 20, 256 << 10, 4096] {
                while let Ok(()) =
                    add(end, step).inspect_err(|&error| assert_eq!(error, Errno::NOSPC))
                {
                    end += step;
                }
            }
        }
    }
    sync();
}

/// Mounts a volume by the kernel, for writing, and returns its figures. On devices that cannot be written to, the
/// kernel counts no space in block groups as available.
fn by_kernel(volume: &KernelVolume) -> Shown {
    let mount = volume.mount("").unwrap();
    let shown = Shown::of(mount.path());
    mount.unmount().unwrap();
    shown
}

/// Mounts a volume by us, runs `play` there, and returns the figures after that.
fn by_us(volume: &KernelVolume, words: &str, play: impl FnOnce(&Path)) -> Shown {
    let dir = volume.dir().join("ours");
    fs::create_dir_all(&dir).unwrap();
    let [first, others @ ..] = volume.devices() else {
        panic!("a volume without devices");
    };
    let others = others
        .iter()
        .map(|device| format!(",device={}", device.display()));
    let words = words.to_owned() + &others.collect::<String>();
    let served = Served::start("serving_process", first, &dir, &words);
    play(&dir);
    let shown = Shown::of(&dir);
    served.end();
    shown
}

#[test]
fn space_is_shown_as_the_kernel_shows_it() {
    if !or_skip("space_is_shown_as_the_kernel_shows_it") {
        return;
    }
    for profile in [
        Profile::Single,
        Profile::Dup,
        Profile::Raid1,
        Profile::Raid0,
    ] {
        let spec = MkfsSpec::new().devices(profile.min_devices()).data(profile);
        for level in [Level::Empty, Level::Half, Level::Full] {
            let what = format!("{profile}, {level:?}");
            let theirs = KernelVolume::make(&spec).unwrap();
            let mount = theirs.mount("").unwrap();
            fill(mount.path(), level);
            mount.unmount().unwrap();
            let expected = by_kernel(&theirs);
            assert_eq!(by_us(&theirs, "ro", |_| {}), expected, "{what}, read-only");
            assert_eq!(by_us(&theirs, "rw,noatime", |_| {}), expected, "{what}");

            let ours = KernelVolume::make(&spec).unwrap();
            let shown = by_us(&ours, "rw,noatime,notreelog", |dir| fill(dir, level));
            assert_eq!(shown, by_kernel(&ours), "{what}, filled by us");
            ours.check().unwrap();
        }
    }
}

/// Writes without the kernel's cache, so that space is allocated when the call returns.
fn write_direct(dir: &Path, mib: usize) {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT;
    let file = open(dir.join("direct"), flags, Mode::from(0o644)).unwrap();
    let len = 1 << 20;
    let mut buffer = vec![7u8; len + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    let aligned = &mut buffer[skip..skip + len];
    for number in 0..mib {
        let written = rustix::io::pwrite(&file, aligned, (number * len) as u64);
        assert_eq!(written, Ok(len));
    }
}

const SMALL: usize = 40;

/// Runs a script, and returns the available bytes after its steps. On the kernel's mount they are read after a commit.
fn script(dir: &Path, sync: &dyn Fn()) -> Vec<[u64; 2]> {
    let mut shown = Vec::new();
    let mut note = || {
        let now = Shown::of(dir);
        shown.push([now.free, now.available].map(|blocks| blocks * now.block_bytes[0]));
    };
    write_direct(dir, 200);
    sync();
    note();
    let big = File::create(dir.join("reserved")).unwrap();
    fallocate(&big, FallocateFlags::empty(), 0, 100 << 20).unwrap();
    sync();
    note();
    for number in 0..SMALL {
        let mut small = File::create(dir.join(format!("small{number}"))).unwrap();
        small.write_all(&[1; 50_000]).unwrap();
        small.sync_all().unwrap();
    }
    note();
    shown
}

fn remove(dir: &Path) {
    fs::remove_file(dir.join("direct")).unwrap();
    for number in 0..SMALL {
        fs::remove_file(dir.join(format!("small{number}"))).unwrap();
    }
}

/// Syncs so that the volume commits, also on our mounts with `notreelog`.
fn sync_all(dir: &Path) {
    let top = File::open(dir).unwrap();
    top.sync_all().unwrap();
    syncfs(&top).unwrap();
}

#[test]
fn space_is_shown_as_it_is_taken_and_once_what_freed_it_is_committed() {
    if !or_skip("space_is_shown_as_it_is_taken_and_once_what_freed_it_is_committed") {
        return;
    }
    /// A difference of a few tree blocks.
    const NEAR: u64 = 4 << 20;
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = theirs.mount("").unwrap();
    let expected = script(mount.path(), &|| sync_all(mount.path()));
    remove(mount.path());
    sync_all(mount.path());
    let expected_at_last = Shown::of(mount.path());
    mount.unmount().unwrap();
    let ours = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mut shown = Vec::new();
    by_us(&ours, "rw,noatime,notreelog,commit=3600", |dir| {
        shown = script(dir, &|| ());
        remove(dir);
        // Files are deleted when the kernel has forgotten them, which it reports later.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            sync_all(dir);
            let now = Shown::of(dir);
            let missing = expected_at_last.free.saturating_sub(now.free);
            if missing * now.block_bytes[0] <= NEAR {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{now:?}, kernel {expected_at_last:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(shown.len(), expected.len());
    for (step, (shown, expected)) in shown.iter().zip(&expected).enumerate() {
        let near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= NEAR;
        let all_near = shown.iter().zip(expected).all(near);
        assert!(all_near, "step {step}: {shown:?}, kernel {expected:?}");
    }
}

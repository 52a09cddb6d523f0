//! `statfs` says of our mount what it says of the kernel's mount of the same volume, whoever filled it.

mod served;

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::io::Errno;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, Profile, or_skip};

use self::served::Served;

/// Not a test: the process that serves the mounts of the test below.
#[test]
#[ignore = "run by another test"]
fn serving_process() {
    served::serve();
}

/// All but the id, which FUSE cannot tell, and the mount's flags.
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
    // Linux tells no FUSE server without a block device of a syncfs; all names are durable with one file.
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

/// Mounted for writing: on devices that cannot be written to the kernel counts nothing as available in block groups.
fn by_kernel(volume: &KernelVolume) -> Shown {
    let mount = volume.mount("").unwrap();
    let shown = Shown::of(mount.path());
    mount.unmount().unwrap();
    shown
}

/// Mounts a volume by us, does something there, and says what is shown then.
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
            let shown = by_us(&ours, "rw,noatime", |dir| fill(dir, level));
            assert_eq!(shown, by_kernel(&ours), "{what}, filled by us");
            ours.check().unwrap();
        }
    }
}

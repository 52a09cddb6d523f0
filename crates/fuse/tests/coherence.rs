//! The kernel's caches of a mount are never older than a complete change.
//!
//! With `UBTRFS_SOAK` set the test runs longer and with more mount options. `UBTRFS_CASE` selects the options of a
//! single run.
#![allow(unsafe_code)]

#[path = "coherence/aio.rs"]
mod aio;
#[path = "coherence/blocks.rs"]
mod blocks;
#[path = "coherence/one_by_one.rs"]
mod one_by_one;
#[path = "coherence/readers.rs"]
mod readers;
mod served;
#[path = "../../../benches/transport/src/switch.rs"]
mod switch;
#[path = "coherence/writers.rs"]
mod writers;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::seed;

use self::aio::Aligned;
use self::blocks::{BLOCK, Blocks, offset_of};
use self::readers::READERS;
use self::served::Served;
use self::switch::with_uring;
use self::writers::{WRITERS, Writer};

const WAYS: &[&str] = &[
    "transport=classic",
    "transport=uring",
    "transport=classic,writeback",
    "transport=classic,opens",
    "transport=uring,writeback",
    "transport=uring,opens",
    "transport=classic,nodatacow",
    "transport=classic,compress=zstd",
];
/// The number of option sets that are always tested, from the first on.
const USUAL: usize = 4;

/// Not a test: the process that serves the mounts of the tests below.
#[test]
#[ignore = "run by other tests"]
fn serving_process() {
    served::serve();
}

fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

/// Runs `play` in a mount of a new volume for each set of options, and checks the volumes.
fn in_each_way(test: &str, mut play: impl FnMut(&Path)) {
    if !or_skip(test) {
        return;
    }
    let ways = if is_soak() { WAYS } else { &WAYS[..USUAL] };
    let wanted = std::env::var("UBTRFS_CASE").ok();
    let is_wanted = |way: &str| wanted.as_deref().is_none_or(|wanted| wanted == way);
    for way in ways.iter().filter(|way| is_wanted(way)) {
        let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let dir = made.dir().join("ours");
        fs::create_dir(&dir).unwrap();
        let mount = || Served::start("serving_process", &made.devices()[0], &dir, way);
        let served = match with_uring(way.contains("uring"), mount) {
            Ok(served) => served,
            Err(error) => {
                ubtrfs_sim::skip_optional(format_args!("{way}: {error}"));
                continue;
            }
        };
        println!("{test}: {way}");
        play(&dir);
        served.end();
        made.check().unwrap();
    }
}

/// Assigns blocks to the writers. Writers with many writes in flight get more.
fn shares(count: usize) -> Vec<(Writer, Vec<usize>)> {
    let weights = WRITERS.map(|writer| match writer {
        Writer::Aio | Writer::Ring => 6,
        _ => 1,
    });
    let turns: Vec<_> = (0..WRITERS.len())
        .flat_map(|writer| std::iter::repeat_n(writer, weights[writer]))
        .collect();
    let mut shares: Vec<_> = WRITERS.map(|writer| (writer, Vec::new())).into();
    for block in 0..count {
        shares[turns[block % turns.len()]].1.push(block);
    }
    shares
}

/// Runs all writers and all readers on one file for a while.
fn side_by_side(dir: &Path, count: usize, seed: u64, time: Duration) -> Blocks {
    let made = Blocks::create(&dir.join("blocks"), count);
    let (blocks, shares) = (&made, shares(count));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (writer, own)) in shares.iter().enumerate() {
            let seed = seed.wrapping_add(number as u64);
            threads.push(scope.spawn(move || writer.run(blocks, own, seed)));
        }
        for (number, reader) in READERS.iter().enumerate() {
            let seed = seed.wrapping_sub(1 + number as u64);
            threads.push(scope.spawn(move || reader.run(blocks, seed)));
        }
        // Keeps attributes in the kernel's cache, to detect stale ones.
        threads.push(scope.spawn(|| {
            while !blocks.is_over() {
                blocks.path.metadata().unwrap();
            }
        }));
        let until = Instant::now() + time;
        while Instant::now() < until && !threads.iter().any(|thread| thread.is_finished()) {
            thread::park_timeout(Duration::from_millis(10));
        }
        blocks.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    made
}

/// Compares cached reads with direct reads, once no thread writes.
fn assert_same_past_the_cache(blocks: &Blocks) {
    let (cached, direct) = (blocks.open(0), blocks.open(libc::O_DIRECT));
    let (mut one, mut other) = (Aligned::new(BLOCK), Aligned::new(BLOCK));
    for number in 0..blocks.count() {
        cached.read_exact_at(&mut one, offset_of(number)).unwrap();
        direct.read_exact_at(&mut other, offset_of(number)).unwrap();
        assert!(*one == *other, "block {number}");
        blocks.assert_current(number, &one, blocks.completed(number), "at the end");
    }
}

/// Checks that the kernel's cached attributes equal the current ones.
fn assert_attributes(path: &Path) {
    let ask = |flags| {
        let shown = statx(
            CWD,
            path,
            AtFlags::SYMLINK_NOFOLLOW | flags,
            StatxFlags::ALL,
        )
        .unwrap();
        let times = [shown.stx_mtime, shown.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
        (
            (shown.stx_size, shown.stx_blocks, shown.stx_nlink),
            (shown.stx_mode, shown.stx_uid, shown.stx_gid, times),
        )
    };
    let shown = ask(AtFlags::empty());
    let asked = ask(AtFlags::STATX_FORCE_SYNC);
    assert_eq!(shown, asked, "{}", path.display());
}

#[test]
fn reads_are_never_older_than_a_write_that_is_complete() {
    let name = "reads_are_never_older_than_a_write_that_is_complete";
    let seed = seed(name);
    let time = if is_soak() {
        Duration::from_secs(120)
    } else {
        Duration::from_secs(2)
    };
    in_each_way(name, |dir| {
        let blocks = side_by_side(dir, 190, seed, time);
        assert_same_past_the_cache(&blocks);
        blocks.open(0).sync_all().unwrap();
        assert_attributes(&blocks.path);
    });
}

/// REQ-7
#[test]
fn each_change_of_a_file_shows_in_every_way_of_reading_it() {
    in_each_way(
        "each_change_of_a_file_shows_in_every_way_of_reading_it",
        one_by_one::play,
    );
}

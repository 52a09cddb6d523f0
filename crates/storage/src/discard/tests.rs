//! Times and places of discards, on volumes in memory with a mock clock.

use std::io;
use std::sync::Barrier;
use std::thread;

use ubtrfs_device::{BlockDevice, DiscardGeometry, MemDevice};
use ubtrfs_format::block_group_flags::{BlockGroupType, Profile};
use ubtrfs_format::ids::Logical;

use super::*;
use crate::space::BlockGroup;
use crate::space::test_volume::{GIB, MIB, NOW, SECTOR, TestVolume, profiles};

/// A device in memory that records its discards.
#[derive(Debug)]
struct Watched {
    inner: MemDevice,
    discards: Mutex<Vec<(u64, u64)>>,
    errno: Mutex<Option<i32>>,
    panics: Mutex<bool>,
    lacks_discards: AtomicBool,
    /// The next discard waits here twice: when it begins, and before it ends.
    meeting: Mutex<Option<Arc<Barrier>>>,
}

impl Watched {
    fn new(len: u64) -> Arc<Watched> {
        Arc::new(Watched {
            inner: MemDevice::new(len),
            discards: Mutex::default(),
            errno: Mutex::default(),
            panics: Mutex::default(),
            lacks_discards: AtomicBool::new(false),
            meeting: Mutex::default(),
        })
    }

    fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut *self.discards.lock())
    }

    fn bytes(&self) -> u64 {
        self.discards.lock().iter().map(|(_, len)| len).sum()
    }
}

impl BlockDevice for Watched {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        let lacks = self.lacks_discards.load(Ordering::Relaxed);
        self.inner.discard_geometry().filter(|_| !lacks)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if let Some(errno) = *self.errno.lock() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        assert!(!*self.panics.lock(), "it was to panic");
        let meeting = self.meeting.lock().take();
        if let Some(barrier) = meeting {
            barrier.wait();
            barrier.wait();
        }
        self.discards.lock().push((offset, len));
        self.inner.discard(offset, len)
    }
}

struct Rig {
    volume: TestVolume,
    device: Arc<Watched>,
    discard: Discard,
}

fn rig_with(device_bytes: u64, options: &DiscardOptions) -> Rig {
    rig_on(&[Watched::new(device_bytes)], options)
}

/// Creates a fixture that records the discards of the first device.
fn rig_on(devices: &[Arc<Watched>], options: &DiscardOptions) -> Rig {
    let device = Arc::clone(&devices[0]);
    let single = profiles(Profile::Single, Profile::Single);
    let all = devices.iter().map(|device| Arc::clone(device) as _);
    let volume = TestVolume::new_on(&single, all.collect());
    let space = Arc::clone(&volume.space);
    let discard = Discard::new(Arc::clone(&space), Arc::clone(&volume.pool), options);
    discard.set_clock(Duration::ZERO);
    // The first data group is empty.
    space.forget_listed_untrimmed();
    Rig {
        volume,
        device,
        discard,
    }
}

/// Creates a fixture with a data group in use, which takes the next allocations.
fn rig() -> Rig {
    let rig = rig_with(4 * GIB, &DiscardOptions::default());
    rig.data(16 * MIB);
    rig
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Rig {
    fn data(&self, len: u64) -> u64 {
        let (start, got) = self.volume.data(len, len).unwrap();
        assert_eq!(got, len);
        self.volume
            .space
            .find(Logical(start))
            .unwrap()
            .change_used(len as i64);
        start
    }

    /// Frees a range, like a commit.
    fn free(&self, start: u64, len: u64) {
        let space = &self.volume.space;
        space.pin(Logical(start), len);
        self.group(start).change_used(-(len as i64));
        let pinned = space.take_pinned();
        self.discard.discard_pinned(&pinned);
        space.unpin(pinned);
    }

    fn group(&self, at: u64) -> Arc<BlockGroup> {
        self.volume.space.find(Logical(at)).unwrap()
    }

    fn step(&self) -> DiscardStep {
        self.discard.step(|| true, || false)
    }

    /// Runs all steps that are due at `at`, and returns the lengths of the discards.
    fn run_at(&self, at: Duration) -> Vec<u64> {
        let mut now = at;
        loop {
            self.discard.set_clock(now);
            match self.step() {
                DiscardStep::Done => {}
                // Only the rate limits delay it.
                DiscardStep::NotBefore(within) if within < seconds(1) => now += within,
                _ => break,
            }
        }
        self.device.take().into_iter().map(|(_, len)| len).collect()
    }

    fn waiting(&self) -> u64 {
        self.discard.stats().discardable_bytes
    }
}

#[test]
fn long_regions_go_after_two_minutes_and_short_ones_after_four() {
    let rig = rig();
    let first = rig.data(100 * MIB);
    let _kept = rig.data(SECTOR);
    let second = rig.data(64 << 10);
    let _kept = rig.data(SECTOR);
    let third = rig.data(16 << 10);
    let _kept = rig.data(SECTOR);
    // The rest of the group is free, and an earlier mount may have left it untrimmed.
    rig.group(first).begin_proof();
    rig.free(first, 100 * MIB);
    rig.free(second, 64 << 10);
    rig.free(third, 16 << 10);
    let waits = 100 * MIB + (80 << 10);
    assert_eq!(rig.waiting(), waits);
    assert_eq!(rig.run_at(seconds(0)), []);
    assert_eq!(rig.run_at(seconds(119)), []);
    assert_eq!(rig.run_at(seconds(120)), [64 * MIB, 36 * MIB]);
    assert_eq!(rig.run_at(seconds(239)), []);
    assert_eq!(rig.run_at(seconds(241)), [64 << 10]);
    assert_eq!(rig.run_at(seconds(2000)), []);
    let stats = rig.discard.stats();
    assert_eq!(stats.discardable_bytes, 16 << 10);
    assert_eq!(stats.discardable_extents, 1);
    assert_eq!(stats.discard_extent_bytes, 100 * MIB + (64 << 10));
    assert_eq!((stats.discards, stats.errors), (3, 0));
}

#[test]
fn space_that_an_earlier_mount_may_have_left_goes_with_the_first_pass() {
    let rig = rig_with(4 * GIB, &DiscardOptions::default());
    let first = rig.data(2 * MIB);
    let _kept = rig.data(SECTOR);
    rig.free(first, 2 * MIB);
    rig.run_at(seconds(0));
    let group = rig.group(first);
    let discarded: u64 = rig.run_at(seconds(120)).iter().sum();
    assert_eq!(discarded, group.len_bytes() - SECTOR);
    // The group is proven by now.
    let again = rig.data(2 * MIB);
    rig.free(again, 2 * MIB);
    assert_eq!(rig.waiting(), 2 * MIB);
}

#[test]
fn empty_group_goes_after_ten_seconds_whatever_it_held() {
    let rig = rig_with(4 * GIB, &DiscardOptions::default());
    let start = rig.data(8 * MIB);
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(0));
    assert_eq!(rig.run_at(seconds(9)), []);
    let discarded: u64 = rig.run_at(seconds(10)).iter().sum();
    assert_eq!(discarded, rig.group(start).len_bytes());
    assert_eq!(rig.waiting(), 0);
    // A group that is used again before its delay has passed waits like other groups in use.
    let start = rig.data(8 * MIB);
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(20));
    let _kept = rig.data(SECTOR);
    assert_eq!(rig.run_at(seconds(30)), []);
    assert_eq!(rig.run_at(seconds(149)), []);
    assert_eq!(rig.run_at(seconds(150)), [8 * MIB - SECTOR]);
}

#[test]
fn group_that_waits_and_becomes_empty_goes_after_ten_seconds() {
    let rig = rig_with(4 * GIB, &DiscardOptions::default());
    let first = rig.data(2 * MIB);
    let second = rig.data(2 * MIB);
    rig.free(first, 2 * MIB);
    assert_eq!(rig.run_at(seconds(0)), []);
    rig.free(second, 2 * MIB);
    assert_eq!(rig.run_at(seconds(5)), []);
    assert_eq!(rig.run_at(seconds(14)), []);
    let discarded: u64 = rig.run_at(seconds(15)).iter().sum();
    assert_eq!(discarded, rig.group(first).len_bytes());
}

#[test]
fn discards_of_space_that_is_used_again_are_saved() {
    let rig = rig();
    let start = rig.data(300 * MIB);
    rig.group(start).begin_proof();
    let _kept = rig.data(SECTOR);
    rig.free(start, 300 * MIB);
    let space = &rig.volume.space;
    space.reserve_data(50 * MIB).unwrap();
    let hint = Some(Logical(start));
    let again = space.allocate_data(50 * MIB, 50 * MIB, hint, NOW).unwrap();
    assert_eq!(again, (Logical(start), 50 * MIB));
    let stats = rig.discard.stats();
    assert_eq!(stats.discard_bytes_saved, 50 * MIB);
    assert_eq!(stats.discardable_bytes, 250 * MIB);
    rig.run_at(seconds(0));
    let discarded: u64 = rig.run_at(seconds(120)).iter().sum();
    assert_eq!(discarded, 250 * MIB);
}

// ASYNC-DISCARD-1
#[test]
fn pinned_space_is_not_discarded() {
    let rig = rig();
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    let space = &rig.volume.space;
    space.pin(Logical(start), 8 * MIB);
    rig.group(start).change_used(-(8 * MIB as i64));
    rig.run_at(seconds(0));
    assert_eq!(rig.run_at(seconds(1000)), []);
    space.unpin(space.take_pinned());
    rig.run_at(seconds(1000));
    assert_eq!(rig.run_at(seconds(1120)), [8 * MIB]);
}

#[test]
fn commit_discards_what_it_frees_in_mode_sync() {
    let options = DiscardOptions {
        mode: Some(DiscardMode::Sync),
        ..DiscardOptions::default()
    };
    let rig = rig_with(4 * GIB, &options);
    let start = rig.data(8 * MIB);
    rig.free(start, 8 * MIB);
    assert_eq!(rig.device.bytes(), 8 * MIB);
    let stats = rig.discard.stats();
    assert_eq!((stats.sync_bytes, stats.discardable_bytes), (8 * MIB, 0));
    assert_eq!(stats.discard_extent_bytes, 0);
    assert_eq!(rig.step(), DiscardStep::Idle);
}

#[test]
fn nothing_is_kept_without_a_mode_and_what_waits_outlives_a_change() {
    let rig = rig();
    let start = rig.data(8 * MIB);
    let other = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    rig.free(start, 8 * MIB);
    assert_eq!(rig.group(start).start(), rig.group(other).start());
    rig.run_at(seconds(0));
    rig.discard.set_mode(Some(DiscardMode::None));
    assert_eq!(rig.run_at(seconds(1000)), []);
    assert_eq!(rig.waiting(), 8 * MIB);
    rig.free(other, 8 * MIB);
    assert_eq!(rig.waiting(), 8 * MIB);
    rig.discard.set_mode(Some(DiscardMode::Async));
    rig.run_at(seconds(1000));
    // The empty group from an earlier mount.
    let groups = rig.volume.space.groups();
    let empty: Vec<_> = groups.iter().filter(|group| group.used() == 0).collect();
    assert_eq!(rig.run_at(seconds(1010)), [empty[0].len_bytes()]);
    // The other group is unproven again, so all of its free space is discarded.
    let discarded: u64 = rig.run_at(seconds(1120)).iter().sum();
    let free_bytes = rig.volume.totals(BlockGroupType::Data).free_bytes;
    assert_eq!(discarded, free_bytes - empty[0].len_bytes());
}

// ASYNC-DISCARD-3
#[test]
fn failed_region_waits_until_something_else_is_freed_in_its_group() {
    const EIO: i32 = 5;
    let rig = rig();
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    let other = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(0));
    *rig.device.errno.lock() = Some(EIO);
    assert_eq!(rig.run_at(seconds(120)), []);
    assert_eq!(rig.discard.stats().errors, 1);
    assert_eq!(rig.waiting(), 8 * MIB);
    assert_eq!(rig.run_at(seconds(1000)), []);
    *rig.device.errno.lock() = None;
    rig.free(other, 8 * MIB);
    rig.run_at(seconds(1000));
    assert_eq!(rig.run_at(seconds(1120)), [8 * MIB, 8 * MIB]);
}

#[test]
fn device_without_discards_is_noticed_once_and_its_space_stays_untrimmed() {
    const EOPNOTSUPP: i32 = 95;
    let rig = rig();
    assert_eq!(rig.discard.mode(), DiscardMode::Async);
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(0));
    *rig.device.errno.lock() = Some(EOPNOTSUPP);
    rig.run_at(seconds(120));
    assert!(!rig.discard.is_possible());
    assert_eq!(rig.waiting(), 8 * MIB);
    let stats = rig.discard.stats();
    assert_eq!((stats.discard_extent_bytes, stats.errors), (0, 0));
    assert_eq!(rig.step(), DiscardStep::Idle);
}

#[test]
fn groups_on_a_device_without_discards_are_passed_over() {
    let devices = [Watched::new(4 * GIB), Watched::new(4 * GIB)];
    devices[1].lacks_discards.store(true, Ordering::Relaxed);
    let rig = rig_on(&devices, &DiscardOptions::default());
    // Until both devices have an extent.
    let mut found = [None; 2];
    while found.contains(&None) {
        let start = rig.data(400 * MIB);
        let group = rig.group(start);
        group.begin_proof();
        let chunk = rig.volume.pool.chunk_map().get(group.start()).unwrap();
        found[chunk.stripes()[0].devid.0 as usize - 1] = Some(start);
    }
    let _ = rig.volume.space.take_new_chunks(NOW);
    let [taking, lacking] = found.map(Option::unwrap);
    rig.free(lacking, 8 * MIB);
    rig.free(taking, 8 * MIB);
    rig.run_at(seconds(0));
    rig.discard.set_clock(seconds(120));
    // The region of the other group, which joined later. Nothing was tried before it.
    assert_eq!(rig.step(), DiscardStep::Done);
    assert_eq!(rig.device.take().len(), 1);
    assert_eq!(rig.waiting(), 8 * MIB);
    assert_eq!(trim(&rig, 0..u64::MAX, 0), rig.device.bytes());
}

#[test]
fn region_for_whose_hole_the_host_has_no_space_waits_on() {
    const ENOSPC: i32 = 28;
    let rig = rig();
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(0));
    *rig.device.errno.lock() = Some(ENOSPC);
    assert_eq!(rig.run_at(seconds(120)), []);
    let stats = rig.discard.stats();
    assert_eq!((stats.errors, stats.discards), (0, 0));
    assert_eq!(
        (stats.discardable_bytes, stats.discard_extent_bytes),
        (8 * MIB, 0)
    );
    assert!(rig.discard.is_possible());
}

#[test]
fn removed_group_leaves_its_space_to_be_discarded() {
    let rig = rig_with(4 * GIB, &DiscardOptions::default());
    let space = &rig.volume.space;
    let before: Vec<_> = space.groups().iter().map(|group| group.start()).collect();
    // More than the first group can hold, so a second one is created.
    let data = rig.data(400 * MIB);
    let made = rig.group(data);
    assert!(!before.contains(&made.start()));
    let _ = space.take_new_chunks(NOW);
    rig.free(data, 400 * MIB);
    let chunk = rig.volume.pool.chunk_map().get(made.start()).unwrap();
    let physical = chunk.stripes()[0].physical.0;
    let removed = space.remove_group(made.start()).unwrap();
    rig.discard.discard_removed(&removed);
    space.free_device_space(&removed);
    assert_eq!(rig.waiting(), made.len_bytes());
    rig.run_at(seconds(0));
    rig.discard.set_clock(seconds(10));
    while rig.step() != DiscardStep::Idle {
        rig.discard.set_clock(rig.discard.clock.now() + seconds(1));
    }
    let discards = rig.device.take();
    assert_eq!(discards[0].0, physical);
    assert_eq!(
        discards.iter().map(|(_, len)| len).sum::<u64>(),
        made.len_bytes()
    );
    assert_eq!(rig.waiting(), 0);
}

// ASYNC-DISCARD-4
#[test]
fn closing_discards_what_waits_at_once() {
    let options = DiscardOptions {
        at_close: seconds(60),
        ..DiscardOptions::default()
    };
    let rig = rig_with(4 * GIB, &options);
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    let short = rig.data(SECTOR);
    let _kept = rig.data(SECTOR);
    rig.free(start, 8 * MIB);
    rig.free(short, SECTOR);
    rig.discard.stop();
    assert_eq!(rig.step(), DiscardStep::Idle);
    assert_eq!(rig.device.bytes(), 0);
    rig.discard.finish();
    assert_eq!(rig.device.bytes(), 8 * MIB + SECTOR);
    assert_eq!(rig.waiting(), 0);
}

fn trim(rig: &Rig, range: std::ops::Range<u64>, min_bytes: u64) -> u64 {
    let request = TrimRequest { range, min_bytes };
    rig.discard.trim(&request, &mut || true).unwrap()
}

// UNALLOCATED-1
#[test]
fn trim_takes_free_runs_of_all_groups_and_unallocated_space_once() {
    let rig = rig();
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.free(start, 8 * MIB);
    let totals = rig.volume.space.totals();
    let free: u64 = totals.iter().map(|totals| totals.free_bytes).sum();
    let first = trim(&rig, 0..u64::MAX, 0);
    let discards = rig.device.take();
    assert_eq!(discards.iter().map(|(_, len)| len).sum::<u64>(), first);
    let unallocated = first - trim(&rig, 0..u64::MAX, 0);
    // Runs are cut to whole device units; this volume has only whole ones.
    assert_eq!(first, free + unallocated);
    assert!(unallocated > 3 * GIB, "{unallocated}");
    assert_eq!(trim(&rig, 0..u64::MAX, 0), free);
    assert_eq!(rig.waiting(), 0);
    assert_eq!(rig.discard.stats().discard_extent_bytes, 0);
    // Only the bytes in the range.
    assert_eq!(trim(&rig, start..start + MIB, 0), MIB);
    assert_eq!(trim(&rig, start..start + MIB, 2 * MIB), 0);
    assert_eq!(trim(&rig, 100 << 40..u64::MAX, 0), 0);
    // Superblock copies and the space before the first one are never discarded.
    for (offset, len) in discards {
        assert!(offset >= MIB);
        let copy = 64 * MIB..64 * MIB + (4 << 10);
        assert!(offset + len <= copy.start || copy.end <= offset);
    }
}

#[test]
fn trim_ends_when_it_is_told_to() {
    let rig = rig();
    let mut asked = 0;
    let request = TrimRequest {
        range: 0..u64::MAX,
        min_bytes: 0,
    };
    let mut twice = || {
        asked += 1;
        asked <= 2
    };
    rig.discard.trim(&request, &mut twice).unwrap();
    let discards = rig.device.take().len();
    assert!((1..=2).contains(&discards), "{discards}");
    rig.discard.stop();
    assert_eq!(trim(&rig, 0..u64::MAX, 0), 0);
}

// TRIM-GATE-1, ASYNC-DISCARD-2
#[test]
fn allocation_on_a_full_volume_waits_for_a_region_that_is_out() {
    let rig = rig_with(256 * MIB, &DiscardOptions::default());
    let mut all = Vec::new();
    while let Ok((start, len)) = rig.volume.data(MIB, SECTOR) {
        rig.group(start).change_used(len as i64);
        all.push((start, len));
    }
    let (start, len) = all[all.len() / 2];
    rig.free(start, len);
    rig.run_at(seconds(0));
    rig.discard.set_clock(seconds(120));
    let free_bytes = rig.volume.totals(BlockGroupType::Data).free_bytes;
    let barrier = Arc::new(Barrier::new(2));
    *rig.device.meeting.lock() = Some(Arc::clone(&barrier));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(rig.step(), DiscardStep::Done));
        barrier.wait();
        // TRIM-3
        rig.volume.space.reserve_data(len).unwrap();
        let space = &rig.volume.space;
        let allocated = scope.spawn(|| space.allocate_data(len, len, None, NOW));
        while !space.is_waited_for_region() && !allocated.is_finished() {
            thread::yield_now();
        }
        barrier.wait();
        let got = allocated.join().unwrap().unwrap();
        assert_eq!(got, (Logical(start), len));
    });
    assert_eq!(rig.waiting(), 0);
    let left = rig.volume.totals(BlockGroupType::Data).free_bytes;
    assert_eq!(left, free_bytes - len);
}

// UNALLOCATED-2
#[test]
fn chunk_is_not_made_over_a_discard_in_flight() {
    let rig = rig();
    let barrier = Arc::new(Barrier::new(2));
    let request = TrimRequest {
        range: u64::MAX..u64::MAX,
        min_bytes: 0,
    };
    *rig.device.meeting.lock() = Some(Arc::clone(&barrier));
    thread::scope(|scope| {
        let mut left = 1;
        let mut once = move || {
            left -= 1;
            left >= 0
        };
        let (discard, request) = (&rig.discard, &request);
        scope.spawn(move || discard.trim(request, &mut once).unwrap());
        barrier.wait();
        let space = &rig.volume.space;
        let writes = scope.spawn(|| {
            space.reserve_data(GIB).unwrap();
            assert_eq!(rig.device.discards.lock().len(), 1);
        });
        while !space.is_making_chunk() && !writes.is_finished() {
            thread::yield_now();
        }
        barrier.wait();
        writes.join().unwrap();
    });
    // The new chunk is at the place of the discard, which had ended.
    let discards = rig.device.take();
    let groups = rig.volume.space.groups();
    let taken = groups.iter().any(|group| {
        let chunk = rig.volume.pool.chunk_map().get(group.start()).unwrap();
        let physical = chunk.stripes()[0].physical.0;
        physical < discards[0].0 + discards[0].1 && discards[0].0 < physical + chunk.stripe_bytes()
    });
    assert!(taken);
}

#[test]
fn panic_of_a_device_leaves_the_region_free_and_untrimmed() {
    let rig = rig();
    let start = rig.data(8 * MIB);
    let _kept = rig.data(SECTOR);
    rig.group(start).begin_proof();
    rig.free(start, 8 * MIB);
    rig.run_at(seconds(0));
    rig.discard.set_clock(seconds(120));
    *rig.device.panics.lock() = true;
    let step = std::panic::AssertUnwindSafe(|| rig.step());
    std::panic::catch_unwind(step).unwrap_err();
    *rig.device.panics.lock() = false;
    assert_eq!(rig.waiting(), 8 * MIB);
    // TRIM-GATE-1
    let space = &rig.volume.space;
    while space.reserve_data(MIB).is_ok() {
        space.allocate_data(MIB, SECTOR, None, NOW).unwrap();
    }
    assert_eq!(rig.waiting(), 0);
}

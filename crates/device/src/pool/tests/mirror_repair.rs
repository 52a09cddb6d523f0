//! Writes to single mirrors, and reads that repair damaged ones.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::block_device::BlockDevice;
use crate::chunk_map::STRIPE_LEN;
use crate::memory::MemDevice;

const LEN: usize = 1 << 20;
/// A damaged sector.
const BAD: u64 = 200 << 10;
const GARBAGE: [u8; 4096] = [0x5a; 4096];

/// Returns device and offset of a byte of the data chunk.
fn place(volume: &TestVolume, offset: u64, mirror: usize) -> (u64, u64) {
    let piece = volume.mapped().piece(offset, 1, mirror);
    (piece.devid.0, piece.physical.0)
}

fn damage(volume: &TestVolume, offset: u64, mirror: usize) {
    let (devid, physical) = place(volume, offset, mirror);
    let device = &volume.devices[devid as usize - 1];
    device.write_at(&GARBAGE, physical).unwrap();
}

/// Returns the contents of all devices.
fn contents(volume: &TestVolume) -> Vec<Vec<u8>> {
    let device = |device: &Arc<MemDevice>| {
        let mut bytes = vec![0; DEVICE_BYTES as usize];
        device.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    volume.devices.iter().map(device).collect()
}

fn writable() -> PoolOptions {
    PoolOptions::new().access(Access::Write)
}

fn read(pool: &Pool) -> Result<(), crate::error::ReadFailure> {
    let mut buf = vec![0; LEN];
    let read = pool.read_repairing(DATA_START, &mut buf, 4096, &mut checker(DATA_START, 4096));
    if read.is_ok() {
        assert!(buf == expected(DATA_START, LEN));
    }
    read
}

fn mirrored_layouts() -> impl Iterator<Item = (Profile, u16)> {
    let is_mirrored =
        |&(profile, _): &(Profile, u16)| profile.parities() == 0 && profile.copies() > 1;
    LAYOUTS.into_iter().filter(is_mirrored)
}

/// MIRROR-REPAIR-1
#[test]
fn read_repairs_every_damaged_mirror_and_nothing_else() {
    for (profile, stripes) in mirrored_layouts() {
        let volume = TestVolume::new(profile, stripes);
        let whole = contents(&volume);
        let copies = volume.mapped().mirrors();
        for mirror in 1..copies {
            damage(&volume, BAD, mirror);
        }
        let pool = volume.pool(|_| true, &writable()).unwrap();
        pool.allow_mirror_repair();
        read(&pool).unwrap();
        assert_eq!(pool.repaired_mirrors(), copies as u64 - 1, "{profile:?}");
        assert_eq!(pool.written_bytes(), (copies as u64 - 1) * 4096);
        assert!(contents(&volume) == whole, "{profile:?}");
        let errors = pool.read_error_count();
        read(&pool).unwrap();
        assert_eq!(pool.read_error_count(), errors);
    }
}

/// MIRROR-REPAIR-2
#[test]
fn nothing_is_repaired_unless_it_is_allowed() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    damage(&volume, BAD, 1);
    let before = contents(&volume);
    let reader = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    reader.allow_mirror_repair();
    let not_allowed = volume.pool(|_| true, &writable()).unwrap();
    let ended = volume.pool(|_| true, &writable()).unwrap();
    ended.allow_mirror_repair();
    ended.end_mirror_repair();
    for pool in [&reader, &not_allowed, &ended] {
        read(pool).unwrap();
        assert_eq!((pool.repaired_mirrors(), pool.written_bytes()), (0, 0));
    }
    let only_checked = volume.pool(|_| true, &writable()).unwrap();
    only_checked.allow_mirror_repair();
    let mut buf = vec![0; LEN];
    let mut good = checker(DATA_START, 4096);
    only_checked
        .read_checked(DATA_START, &mut buf, 4096, &mut good)
        .unwrap();
    assert!(contents(&volume) == before);
}

/// The bytes are good, but no profile with parity can be written.
#[test]
fn chunks_with_parity_stay_damaged() {
    let volume = TestVolume::new(Profile::Raid5, 3);
    damage(&volume, BAD, 1);
    let before = contents(&volume);
    let pool = volume.pool(|_| true, &writable()).unwrap();
    pool.allow_mirror_repair();
    read(&pool).unwrap();
    assert!(contents(&volume) == before);
    let refused = pool.write_mirror(DATA_START, &GARBAGE, 1).unwrap_err();
    assert!(matches!(refused, DeviceError::ParityWrite { .. }));
}

#[test]
fn block_without_a_good_mirror_is_not_written() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    for mirror in [1, 2] {
        damage(&volume, BAD, mirror);
    }
    let before = contents(&volume);
    let pool = volume.pool(|_| true, &writable()).unwrap();
    pool.allow_mirror_repair();
    assert_eq!(read(&pool).unwrap_err().index, BAD as usize / 4096);
    assert!(contents(&volume) == before);
}

/// A device whose reads of one sector or all of whose writes fail, or are held up.
#[derive(Debug)]
struct Planted {
    inner: Arc<dyn BlockDevice>,
    /// Reads that touch this offset fail until it is written.
    unreadable: Option<u64>,
    was_written: AtomicBool,
    refuses_writes: bool,
    /// Each write waits here twice.
    meeting: Option<Arc<Barrier>>,
}

impl BlockDevice for Planted {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        let is_bad = self.unreadable.is_some_and(|bad| range.contains(&bad));
        if is_bad && !self.was_written.load(Ordering::Relaxed) {
            return Err(io::Error::other("planted"));
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.refuses_writes {
            return Err(io::Error::other("planted"));
        }
        if let Some(meeting) = &self.meeting {
            meeting.wait();
            meeting.wait();
        }
        if self.unreadable == Some(offset) {
            self.was_written.store(true, Ordering::Relaxed);
        }
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Planted {
    fn new(inner: Arc<dyn BlockDevice>) -> Planted {
        Planted {
            inner,
            unreadable: None,
            was_written: AtomicBool::new(false),
            refuses_writes: false,
            meeting: None,
        }
    }
}

/// Disks replace a bad sector when it is written.
#[test]
fn sector_that_cannot_be_read_is_rewritten() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let (devid, physical) = place(&volume, BAD, 1);
    let wrap = |number, inner| -> Arc<dyn BlockDevice> {
        Arc::new(Planted {
            unreadable: (number == devid).then_some(physical),
            ..Planted::new(inner)
        })
    };
    let pool = volume.pool_with(|_| true, &writable(), wrap).unwrap();
    pool.allow_mirror_repair();
    read(&pool).unwrap();
    assert_eq!(pool.repaired_mirrors(), 1);
    let errors = pool.read_error_count();
    read(&pool).unwrap();
    assert_eq!(pool.read_error_count(), errors);
}

#[test]
fn mirror_that_cannot_be_written_fails_neither_the_read_nor_a_flush() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    damage(&volume, BAD, 1);
    let (devid, _) = place(&volume, BAD, 1);
    let wrap = |number, inner| -> Arc<dyn BlockDevice> {
        Arc::new(Planted {
            refuses_writes: number == devid,
            ..Planted::new(inner)
        })
    };
    let pool = volume.pool_with(|_| true, &writable(), wrap).unwrap();
    pool.allow_mirror_repair();
    read(&pool).unwrap();
    assert_eq!(pool.repaired_mirrors(), 0);
    // One corruption, and no missed write: the device is still read first.
    assert_eq!(pool.error_counts(DevId(devid)), Some([0, 0, 0, 1, 0]));
    pool.flush().unwrap().all().unwrap();
}

/// MIRROR-REPAIR-2
#[test]
fn end_of_repairs_waits_for_one_in_progress() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    damage(&volume, BAD, 1);
    let meeting = Arc::new(Barrier::new(2));
    let wrap = |_, inner| -> Arc<dyn BlockDevice> {
        Arc::new(Planted {
            meeting: Some(Arc::clone(&meeting)),
            ..Planted::new(inner)
        })
    };
    let pool = volume.pool_with(|_| true, &writable(), wrap).unwrap();
    pool.allow_mirror_repair();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&pool));
        // The write has begun.
        meeting.wait();
        let ending = scope.spawn(|| {
            pool.end_mirror_repair();
            has_ended.store(true, Ordering::Release);
        });
        assert!(!has_ended.load(Ordering::Acquire));
        meeting.wait();
        ending.join().unwrap();
        reader.join().unwrap().unwrap();
    });
    // The repair was done before the end.
    assert_eq!(pool.repaired_mirrors(), 1);
}

#[test]
fn each_mirror_is_written_alone() {
    for (profile, stripes) in mirrored_layouts() {
        let volume = TestVolume::new(profile, stripes);
        let pool = volume.pool(|_| true, &writable()).unwrap();
        let copies = volume.mapped().mirrors();
        // Across the end of a stripe.
        let logical = Logical(DATA_START.0 + STRIPE_LEN - 4096);
        for mirror in 1..=copies {
            let bytes = [mirror as u8; 8192];
            pool.write_mirror(logical, &bytes, mirror).unwrap();
        }
        for mirror in 1..=copies {
            let mut found = [0; 8192];
            pool.read_mirror(logical, &mut found, mirror).unwrap();
            assert_eq!(found, [mirror as u8; 8192], "{profile:?}");
        }
        let none = pool.write_mirror(logical, &[0; 4096], copies + 1);
        assert!(matches!(none, Err(DeviceError::NoMirror { .. })));
    }
}

#[test]
fn missing_device_is_not_written() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let options = writable().degraded(true);
    let pool = volume.pool(|devid| devid == 1, &options).unwrap();
    assert_eq!(place(&volume, 0, 2).0, 2);
    let refused = pool.write_mirror(DATA_START, &GARBAGE, 2).unwrap_err();
    assert!(matches!(refused, DeviceError::NoCopy { .. }), "{refused}");
}

//! Damaged and failing devices: fallback to other mirrors, and recorded errors.

use super::*;
use crate::block_device::BlockDevice;
use crate::nonblocking;
use crate::pool::CheckedRead;
use crate::read_errors::ReadErrorKind;
use std::io;
use std::ops::Range;
use ubtrfs_format::ids::Physical;

/// A device that fails reads of a range.
#[derive(Debug)]
struct Failing {
    inner: Arc<dyn BlockDevice>,
    bad: Range<u64>,
}

impl BlockDevice for Failing {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset < self.bad.end && self.bad.start < offset + buf.len() as u64 {
            return Err(io::Error::other("planted"));
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

fn read_range(pool: &Pool, len: usize) -> Result<(), crate::error::ReadFailure> {
    let mut buf = vec![0; len];
    let read = pool.read_checked(DATA_START, &mut buf, 4096, &mut checker(DATA_START, 4096));
    if read.is_ok() {
        assert!(buf == expected(DATA_START, len));
    }
    read
}

/// Returns the device and offset of the data chunk's byte at `offset`, for direct reads.
fn place(volume: &TestVolume, offset: u64, mirror: usize) -> (u64, u64) {
    let piece = volume.mapped().piece(offset, 1, mirror);
    (piece.devid.0, piece.physical.0)
}

// CHECKED-1 and CHECKED-2.
#[test]
fn damaged_sector_is_read_from_elsewhere_and_recorded_with_its_place() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let (devid, physical) = place(&volume, 200 << 10, 1);
        let garbage = [0x5a; 100];
        volume.devices[devid as usize - 1]
            .write_at(&garbage, physical + 7)
            .unwrap();
        let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
        let read = read_range(&pool, 1 << 20);
        let has_other = profile.tolerated_failures() > 0 || profile == Profile::Dup;
        assert_eq!(read.is_ok(), has_other, "{profile:?} x{stripes}: {read:?}");
        let first = &pool.read_errors()[0];
        assert_eq!(
            (first.devid, first.physical),
            (DevId(devid), Physical(physical))
        );
        assert_eq!(first.logical.0, DATA_START.0 + (200 << 10));
        assert_eq!((first.mirror, &first.kind), (1, &ReadErrorKind::Content));
        if let Err(failure) = read {
            assert_eq!(failure.index, 50);
            assert_eq!(pool.unrecovered_count(), 1);
        } else {
            assert_eq!(pool.read_error_count(), 1);
        }
    }
}

/// CHECKED-3
#[test]
fn thread_that_must_not_wait_leaves_damage_to_others() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let (devid, physical) = place(&volume, 200 << 10, 1);
    let device = &volume.devices[devid as usize - 1];
    device.write_at(&[0x5a; 100], physical).unwrap();
    let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    let failure = nonblocking::scope(|| read_range(&pool, 1 << 20)).unwrap_err();
    assert!(failure.is_would_block());
    assert_eq!(pool.read_error_count(), 0);
    read_range(&pool, 1 << 20).unwrap();
    assert_eq!(pool.read_error_count(), 1);
}

#[test]
fn two_damaged_members_of_a_raid6_row_are_both_rebuilt() {
    for stripes in [4, 5, 6, 7] {
        let whole = TestVolume::new(Profile::Raid6, stripes);
        let chunk = whole.mapped();
        let row = chunk.row(0);
        for a in 0..row.members {
            for b in 0..a {
                let volume = whole.fork();
                for member in [a, b] {
                    let (devid, physical) = chunk.row_place(row, member, 0);
                    let device = &volume.devices[devid.0 as usize - 1];
                    device.write_at(&[0x77; 4096], physical.0 + 8192).unwrap();
                }
                let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
                let read = read_range(&pool, 512 << 10);
                assert!(read.is_ok(), "x{stripes}: {a} and {b}: {read:?}");
            }
        }
    }
}

#[test]
fn bad_sector_costs_only_itself() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let (bad_devid, physical) = place(&volume, 136 << 10, 1);
        let wrap = |devid, inner| -> Arc<dyn BlockDevice> {
            if devid == bad_devid {
                let bad = physical..physical + 4096;
                Arc::new(Failing { inner, bad })
            } else {
                inner
            }
        };
        let pool = volume
            .pool_with(|_| true, &PoolOptions::new(), wrap)
            .unwrap();
        let read = read_range(&pool, 1 << 20);
        let has_other = profile.tolerated_failures() > 0 || profile == Profile::Dup;
        assert_eq!(read.is_ok(), has_other, "{profile:?} x{stripes}: {read:?}");
        let kinds_ok = pool
            .read_errors()
            .iter()
            .all(|e| e.kind == ReadErrorKind::Io("planted".into()) || !has_other);
        assert!(kinds_ok, "{:?}", pool.read_errors());
        if let Err(failure) = read {
            assert_eq!(failure.index, 34, "{profile:?}");
        }
    }
}

#[test]
fn failing_device_among_the_sources_of_a_rebuild_is_rebuilt_around() {
    let volume = TestVolume::new(Profile::Raid6, 5);
    let wrap = |devid, inner| -> Arc<dyn BlockDevice> {
        if devid == 3 {
            Arc::new(Failing {
                inner,
                bad: 16 << 20..u64::MAX,
            })
        } else {
            inner
        }
    };
    let pool = volume
        .pool_with(|devid| devid != 1, &degraded(), wrap)
        .unwrap();
    read_range(&pool, DATA_BYTES as usize).unwrap();
    assert!(pool.read_errors().iter().all(|e| e.devid == DevId(3)));
}

#[test]
fn batch_keeps_each_reads_outcome_apart() {
    let volume = TestVolume::new(Profile::Raid0, 3);
    let (devid, physical) = place(&volume, 0, 1);
    volume.devices[devid as usize - 1]
        .write_at(&[1; 64], physical)
        .unwrap();
    let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    let mut bufs = vec![vec![0; 96 << 10]; 12];
    let starts: Vec<Logical> = (0..12)
        .map(|n| Logical(DATA_START.0 + n * (96 << 10)))
        .collect();
    let mut checkers: Vec<_> = starts.iter().map(|&s| checker(s, 4096)).collect();
    let mut reads: Vec<CheckedRead<'_>> = bufs
        .iter_mut()
        .zip(&starts)
        .zip(&mut checkers)
        .map(|((buf, &logical), good)| CheckedRead {
            logical,
            buf,
            block_bytes: 4096,
            good,
            repairs: false,
            result: Ok(()),
        })
        .collect();
    pool.read_checked_batch(&mut reads);
    let outcomes: Vec<bool> = reads.iter().map(|read| read.result.is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|&&ok| !ok).count(), 1);
    assert!(!outcomes[0]);
    for (buf, &start) in bufs.iter().zip(&starts).skip(1) {
        assert!(*buf == expected(start, buf.len()));
    }
}

#[test]
fn log_of_read_errors_is_bounded_and_the_count_is_not() {
    let volume = TestVolume::new(Profile::Single, 1);
    let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    for _ in 0..4 {
        let mut buf = vec![0; 2 << 19];
        let read = pool.read_checked(DATA_START, &mut buf, 512, &mut |_, _| false);
        assert!(read.is_err());
    }
    assert_eq!(pool.read_error_count(), 8192);
    assert_eq!(pool.read_errors().len(), 1024);
    assert_eq!(pool.unrecovered_count(), 8192);
}

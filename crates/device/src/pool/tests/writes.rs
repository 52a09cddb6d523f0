//! Failing writes, and the order of superblock writes and flushes.

use super::*;
use crate::block_device::BlockDevice;
use std::io;
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;

/// A request that reached a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Write(u64),
    Flush,
}

/// A device that records writes and flushes, and may reject them.
#[derive(Debug)]
struct Noting {
    inner: Arc<dyn BlockDevice>,
    requests: Arc<Mutex<Vec<Request>>>,
    refused: Option<Request>,
}

impl Noting {
    fn note(&self, request: Request) -> io::Result<()> {
        self.requests.lock().push(request);
        match self.refused {
            Some(refused) if refused == request => Err(io::Error::other("planted")),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Noting {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.note(Request::Write(offset))?;
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.note(Request::Flush)?;
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

/// WRITE-1
#[test]
fn write_fails_if_more_copies_fail_than_the_profile_tolerates() {
    for (profile, stripes) in LAYOUTS {
        if profile.parities() > 0 {
            continue;
        }
        let volume = TestVolume::new(profile, stripes);
        let chunk = volume.mapped();
        let copies: Vec<(u64, u64)> = (1..=chunk.mirrors())
            .map(|mirror| chunk.piece(0, 4096, mirror))
            .map(|piece| (piece.devid.0, piece.physical.0))
            .collect();
        for failing in 0..=copies.len() {
            let wrap = |devid, inner| -> Arc<dyn BlockDevice> {
                let copy = copies[..failing].iter().find(|copy| copy.0 == devid);
                Arc::new(Noting {
                    inner,
                    requests: Arc::default(),
                    refused: copy.map(|copy| Request::Write(copy.1)),
                })
            };
            let pool = volume.pool_with(|_| true, &PoolOptions::new(), wrap);
            let pool = pool.unwrap();
            let written = pool.write(&[(DATA_START, &[7; 4096])]);
            let wanted = failing <= profile.tolerated_failures();
            assert_eq!(written.is_ok(), wanted, "{profile:?}, {failing} failing");
            let everywhere = pool.write_all_copies(&[(DATA_START, &[7; 4096])]);
            assert_eq!(everywhere.is_ok(), failing == 0, "{profile:?}");
        }
    }
}

fn pool_refusing(volume: &TestVolume, failing: &[u64], refused: Request) -> Pool {
    pool_refusing_by(volume, |devid| failing.contains(&devid).then_some(refused))
}

fn pool_refusing_by(volume: &TestVolume, refused: impl Fn(u64) -> Option<Request>) -> Pool {
    let wrap = |devid, inner| -> Arc<dyn BlockDevice> {
        Arc::new(Noting {
            inner,
            requests: Arc::default(),
            refused: refused(devid),
        })
    };
    let pool = volume.pool_with(|_| true, &PoolOptions::new(), wrap);
    pool.unwrap()
}

/// WRITE-3. The system chunk is only on the first device.
#[test]
fn flush_fails_if_a_chunk_may_have_lost_more_than_its_profile_tolerates() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        for failing in 0..stripes {
            let failing: Vec<u64> = (2..).take(failing.into()).collect();
            let pool = pool_refusing(&volume, &failing, Request::Flush);
            let flushed = pool.flush();
            let wanted = failing.len() <= profile.tolerated_failures();
            assert_eq!(flushed.is_ok(), wanted, "{profile:?}, {failing:?}");
            let all = flushed.and_then(Reached::all);
            assert_eq!(all.is_ok(), failing.is_empty(), "{profile:?}, {failing:?}");
        }
        let pool = pool_refusing(&volume, &[1], Request::Flush);
        assert!(pool.flush().is_err(), "{profile:?}");
    }
}

/// WRITE-3
#[test]
fn superblock_is_written_if_one_device_takes_it() {
    let [first, other, _] = SUPERBLOCK_OFFSETS;
    let volume = TestVolume::new(Profile::Raid1c3, 3);
    let next = superblock(1, 3);
    for (failing, offset, is_ok, is_all) in [
        (&[1, 2][..], first, true, false),
        (&[1, 2, 3], first, false, false),
        (&[1, 2, 3], other, true, true),
    ] {
        let pool = pool_refusing(&volume, failing, Request::Write(offset));
        let reached = pool.commit_superblock(&next);
        assert_eq!(reached.is_ok(), is_ok, "{failing:?}");
        let all = reached.and_then(Reached::all);
        assert_eq!(all.is_ok(), is_all, "{failing:?}");
        let counts = pool.error_counts(DevId(1)).unwrap();
        assert_eq!(counts, [1, 0, 0, 0, 0]);
    }
}

/// WRITE-3
#[test]
fn flush_fails_that_may_have_lost_the_other_copy_of_what_a_device_did_not_take() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let copy = volume.mapped().piece(0, 4096, 1);
    let pool = pool_refusing_by(&volume, |devid| {
        if devid == copy.devid.0 {
            Some(Request::Write(copy.physical.0))
        } else if devid == 1 {
            None
        } else {
            Some(Request::Flush)
        }
    });
    assert!(pool.flush().is_ok());
    pool.write(&[(DATA_START, &[7; 4096])]).unwrap();
    assert!(pool.flush().is_err());
    assert!(pool.flush().is_ok(), "what was written since is whole");
}

/// MISSED-2
#[test]
fn flush_that_fails_is_no_flush_for_data_without_checksums() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let pool = pool_refusing(&volume, &[2], Request::Flush);
    pool.write(&[(DATA_START, &[7; 4096])]).unwrap();
    assert!(pool.flush().is_ok());
    pool.write_unsummed(&[(DATA_START, &[7; 4096])]).unwrap();
    assert!(pool.flush().is_err());
    assert!(pool.flush().is_ok());
}

/// MISSED-1: only the error count reveals that the second write left old bytes.
#[test]
fn device_that_missed_a_write_is_read_last() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let copy = volume.mapped().piece(0, 4096, 1);
    let pool = pool_refusing(&volume, &[copy.devid.0], Request::Write(copy.physical.0));
    let new = [7; 4096];
    let read = |pool: &Pool| {
        let mut bytes = [0; 4096];
        let read = pool.read_checked(DATA_START, &mut bytes, 4096, &mut |_, _| true);
        read.unwrap();
        bytes
    };
    pool.write_unsummed(&[(DATA_START, &new)]).unwrap_err();
    assert_eq!(read(&pool), new);
    let degraded = volume
        .pool(|devid| devid == copy.devid.0, &degraded())
        .unwrap();
    assert_ne!(read(&degraded), new, "where there is no other mirror");
}

/// WRITE-1: a missing device counts as a failing one.
#[test]
fn write_leaves_out_a_missing_device() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let pool = volume.pool(|devid| devid != 2, &degraded()).unwrap();
    pool.write(&[(DATA_START, &[7; 4096])]).unwrap();
    pool.write_all_copies(&[(DATA_START, &[7; 4096])]).unwrap();
    let volume = TestVolume::new(Profile::Raid0, 2);
    let pool = volume.pool(|devid| devid != 2, &degraded()).unwrap();
    let second = Logical(DATA_START.0 + (64 << 10));
    pool.write(&[(DATA_START, &[7; 4096])]).unwrap();
    let error = pool.write(&[(second, &[7; 4096])]).unwrap_err();
    assert!(matches!(error, DeviceError::NoCopy { logical } if logical == second));
}

/// WRITE-2: the first copies of all devices are durable before any other copy changes.
#[test]
fn other_superblocks_follow_a_flush_of_the_first() {
    let [first, other, _] = SUPERBLOCK_OFFSETS;
    for refused in [None, Some(Request::Flush)] {
        let volume = TestVolume::new(Profile::Raid1, 2);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let wrap = |_, inner| -> Arc<dyn BlockDevice> {
            Arc::new(Noting {
                inner,
                requests: Arc::clone(&requests),
                refused,
            })
        };
        let pool = volume.pool_with(|_| true, &PoolOptions::new(), wrap);
        let mut next = superblock(1, 2);
        next.generation = 11.into();
        let outcome = pool.unwrap().commit_superblock(&next);
        let requests = requests.lock().clone();
        let wanted = match refused {
            None => vec![
                Request::Write(first),
                Request::Write(first),
                Request::Flush,
                Request::Flush,
                Request::Write(other),
                Request::Write(other),
            ],
            Some(_) => vec![
                Request::Write(first),
                Request::Write(first),
                Request::Flush,
                Request::Flush,
            ],
        };
        assert_eq!(requests, wanted);
        assert_eq!(outcome.is_ok(), refused.is_none());
    }
}

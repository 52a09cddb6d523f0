//! Discards: the affected ranges of each device, and rejected discards.

use super::*;
use crate::block_device::{BlockDevice, PastEnd};
use crate::chunk_map::STRIPE_LEN;
use crate::discard_geometry::DiscardGeometry;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;

const BLOCK: u64 = 4096;

/// A device that records the range of each discard and may reject all of them.
#[derive(Debug)]
struct Discarding {
    inner: Arc<dyn BlockDevice>,
    limits: Option<DiscardGeometry>,
    answer: Option<Errno>,
    asked: Mutex<Vec<(u64, u64)>>,
}

impl BlockDevice for Discarding {
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
        self.limits
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        self.asked.lock().push((offset, len));
        self.answer.map_or(Ok(()), |errno| Err(errno.into()))
    }
}

/// A pool of devices that record discards. Device 1 responds to discards with `answer`.
struct Noted {
    pool: Pool,
    devices: BTreeMap<u64, Arc<Discarding>>,
}

impl Noted {
    fn new(volume: &TestVolume, limits: Option<DiscardGeometry>, answer: Option<Errno>) -> Noted {
        let devices = Mutex::new(BTreeMap::new());
        let wrap = |devid, inner| -> Arc<dyn BlockDevice> {
            let device = Arc::new(Discarding {
                inner,
                limits,
                answer: answer.filter(|_| devid == 1),
                asked: Mutex::default(),
            });
            devices.lock().insert(devid, Arc::clone(&device));
            device
        };
        let options = PoolOptions::new().access(Access::Write);
        let pool = volume.pool_with(|_| true, &options, wrap).unwrap();
        Noted {
            pool,
            devices: devices.into_inner(),
        }
    }

    fn asked(&self, devid: u64) -> Vec<(u64, u64)> {
        self.devices[&devid].asked.lock().clone()
    }

    /// Returns every block of every device that was discarded.
    fn blocks(&self) -> BTreeSet<(u64, u64)> {
        let of_device = |(&devid, device): (&u64, &Arc<Discarding>)| {
            let asked = device.asked.lock().clone();
            let blocks = asked
                .into_iter()
                .flat_map(|(at, len)| (at..at + len).step_by(BLOCK as usize));
            blocks.map(move |at| (devid, at)).collect::<Vec<_>>()
        };
        self.devices.iter().flat_map(of_device).collect()
    }
}

fn blockwise() -> Option<DiscardGeometry> {
    Some(DiscardGeometry::new(BLOCK, u64::MAX))
}

#[test]
fn discard_reaches_all_copies_and_nothing_else() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let chunk = volume.mapped();
        for (from, len) in [
            (0, DATA_BYTES),
            (5 * BLOCK, 37 * BLOCK),
            (STRIPE_LEN, BLOCK),
        ] {
            let noted = Noted::new(&volume, blockwise(), None);
            let at = Logical(DATA_START.0 + from);
            let bytes = noted.pool.discard(at, len).unwrap();
            let mut wanted = BTreeSet::new();
            if profile.parities() == 0 {
                for offset in (from..from + len).step_by(BLOCK as usize) {
                    for mirror in 1..=chunk.mirrors() {
                        let piece = chunk.piece(offset, BLOCK, mirror);
                        wanted.insert((piece.devid.0, piece.physical.0));
                    }
                }
            }
            assert!(noted.blocks() == wanted, "{profile:?} x{stripes} {from}");
            assert_eq!(bytes, wanted.len() as u64 * BLOCK, "{profile:?}");
        }
    }
}

#[test]
fn columns_of_a_striped_chunk_are_discarded_as_a_whole() {
    let noted = Noted::new(&TestVolume::new(Profile::Raid0, 3), blockwise(), None);
    noted.pool.discard(DATA_START, DATA_BYTES).unwrap();
    for devid in 1..=3 {
        let column = ((16 + devid) << 20, DATA_BYTES / 3);
        assert_eq!(noted.asked(devid), [column]);
    }
}

/// DISCARD-2
#[test]
fn discard_is_cut_to_units_and_to_the_largest_request() {
    let volume = TestVolume::new(Profile::Single, 1);
    let limits = DiscardGeometry::new(3 * BLOCK, 5 * BLOCK);
    assert_eq!(
        (limits.granularity, limits.max_bytes),
        (4 * BLOCK, 4 * BLOCK)
    );
    let noted = Noted::new(&volume, Some(limits), None);
    assert_eq!(noted.pool.discard_granularity(), 4 * BLOCK);
    let start = 17 << 20;
    let at = Logical(DATA_START.0 + BLOCK);
    assert_eq!(noted.pool.discard(at, 12 * BLOCK).unwrap(), 8 * BLOCK);
    let unit = 4 * BLOCK;
    assert_eq!(
        noted.asked(1),
        [(start + unit, unit), (start + 2 * unit, unit)]
    );
    assert_eq!(noted.pool.discard(at, 5 * BLOCK).unwrap(), 0);
    assert_eq!(noted.pool.discard(DATA_START, 0).unwrap(), 0);
    let counts = noted.pool.discard_counts();
    assert_eq!((counts.requests, counts.bytes), (2, 2 * unit));
}

/// DISCARD-1
#[test]
fn superblocks_and_the_first_mib_are_left_alone() {
    let volume = TestVolume::new(Profile::Single, 1);
    let noted = Noted::new(&volume, blockwise(), None);
    let bytes = noted.pool.discard_physical(DevId(1), 0, u64::MAX).unwrap();
    let (first, copy) = (1 << 20, SUPERBLOCK_OFFSETS[1]);
    let behind = copy + STRIPE_LEN;
    assert_eq!(
        noted.asked(1),
        [(first, copy - first), (behind, DEVICE_BYTES - behind)]
    );
    assert_eq!(bytes, DEVICE_BYTES - first - STRIPE_LEN);
    assert_eq!(
        noted.pool.discard_physical(DevId(1), copy, BLOCK).unwrap(),
        0
    );
    assert_eq!(
        noted.pool.discard_physical(DevId(7), 0, u64::MAX).unwrap(),
        0
    );
}

/// DISCARD-3
#[test]
fn device_that_refuses_is_not_asked_again() {
    for errno in [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY] {
        let noted = Noted::new(
            &TestVolume::new(Profile::Raid1, 2),
            blockwise(),
            Some(errno),
        );
        for _ in 0..3 {
            let bytes = noted.pool.discard(DATA_START, DATA_BYTES).unwrap();
            assert_eq!(bytes, DATA_BYTES, "the other device");
        }
        assert_eq!((noted.asked(1).len(), noted.asked(2).len()), (1, 3));
        assert!(noted.pool.can_discard());
        let alone = Noted::new(
            &TestVolume::new(Profile::Single, 1),
            blockwise(),
            Some(errno),
        );
        assert!(alone.pool.can_discard());
        assert_eq!(alone.pool.discard(DATA_START, DATA_BYTES).unwrap(), 0);
        assert!(!alone.pool.can_discard(), "{errno}");
    }
}

#[test]
fn device_without_discards_is_left_out() {
    let noted = Noted::new(&TestVolume::new(Profile::Raid1, 2), None, None);
    assert!(!noted.pool.can_discard());
    assert_eq!(noted.pool.discard_granularity(), 4096);
    assert_eq!(noted.pool.discard(DATA_START, DATA_BYTES).unwrap(), 0);
    assert!(noted.blocks().is_empty());
}

#[test]
fn failing_discard_is_an_error_after_the_other_copies() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let noted = Noted::new(&volume, blockwise(), Some(Errno::IO));
    for times in 1..=2 {
        let error = noted.pool.discard(DATA_START, DATA_BYTES).unwrap_err();
        assert!(
            matches!(
                &error,
                DeviceError::Discard {
                    len: DATA_BYTES,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!((noted.asked(1).len(), noted.asked(2).len()), (times, times));
    }
}

/// A subscriber that keeps the levels of all log events.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<tracing::Level>>>);

impl tracing::Subscriber for Levels {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().push(*event.metadata().level());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn busy_device_is_no_error_in_the_log() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    for (answer, logged) in [
        (Errno::BUSY, tracing::Level::DEBUG),
        (Errno::IO, tracing::Level::ERROR),
    ] {
        let noted = Noted::new(&volume, blockwise(), Some(answer));
        let levels = Levels::default();
        tracing::subscriber::with_default(levels.clone(), || {
            noted.pool.discard(DATA_START, DATA_BYTES).unwrap_err();
        });
        assert_eq!(*levels.0.lock(), [logged], "{answer}");
        assert!(noted.pool.can_discard(), "{answer}");
    }
}

#[test]
fn each_of_several_ranges_has_its_own_outcome() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let noted = Noted::new(&volume, blockwise(), None);
    let range = |from: u64, len: u64| DATA_START.0 + from..DATA_START.0 + from + len;
    // The first two ranges are adjacent, the third is outside, and the rest need more requests than fit in flight.
    let mut ranges = vec![
        range(0, 3 * BLOCK),
        range(3 * BLOCK, BLOCK),
        range(DATA_BYTES, BLOCK),
    ];
    let last = (0..150).map(|nth| range((5 + 2 * nth) * BLOCK, BLOCK));
    ranges.extend(last);
    let outcomes = noted.pool.discard_all(&ranges);
    assert_eq!(outcomes.len(), ranges.len());
    for (number, (range, outcome)) in ranges.iter().zip(&outcomes).enumerate() {
        match number {
            2 => assert!(matches!(outcome, Err(DeviceError::NoChunk { .. }))),
            _ => assert_eq!(*outcome.as_ref().unwrap(), 2 * (range.end - range.start)),
        }
    }
    for devid in 1..=2 {
        let asked = noted.asked(devid);
        assert_eq!(asked.len(), 152);
        assert_eq!(asked.iter().map(|(_, len)| len).sum::<u64>(), 154 * BLOCK);
    }
}

#[test]
fn no_more_is_asked_of_a_device_that_fails() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let noted = Noted::new(&volume, blockwise(), Some(Errno::IO));
    let start = |nth: u64| DATA_START.0 + 2 * nth * BLOCK;
    let ranges: Vec<_> = (0..150).map(|nth| start(nth)..start(nth) + BLOCK).collect();
    let outcomes = noted.pool.discard_all(&ranges);
    assert!(matches!(outcomes[0], Err(DeviceError::Discard { .. })));
    assert!(
        outcomes[1..]
            .iter()
            .all(|outcome| *outcome.as_ref().unwrap() == BLOCK)
    );
    assert!(noted.asked(1).len() < 100);
    assert_eq!(noted.asked(2).len(), 150);
}

#[test]
fn hole_for_which_there_is_no_space_counts_nothing() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let noted = Noted::new(&volume, blockwise(), Some(Errno::NOSPC));
    for times in 1..=2 {
        assert_eq!(
            noted.pool.discard(DATA_START, DATA_BYTES).unwrap(),
            DATA_BYTES
        );
        assert_eq!(noted.asked(1).len(), times, "asked again");
    }
}

#[test]
fn missing_devices_and_readers_are_left_out() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let write = degraded().access(Access::Write);
    let pool = volume.pool(|devid| devid != 2, &write).unwrap();
    assert_eq!(pool.discard(DATA_START, DATA_BYTES).unwrap(), DATA_BYTES);
    assert_eq!(pool.discard_physical(DevId(2), 0, u64::MAX).unwrap(), 0);
    let reader = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    assert!(!reader.can_discard());
    assert_eq!(reader.discard(DATA_START, DATA_BYTES).unwrap(), 0);
    let outside = Logical(DATA_START.0 + DATA_BYTES - BLOCK);
    let error = pool.discard(outside, 2 * BLOCK).unwrap_err();
    assert!(matches!(error, DeviceError::NoChunk { .. }));
}

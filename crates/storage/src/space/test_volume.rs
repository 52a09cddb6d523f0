//! Empty volumes in memory for tests, and a configurable source of free space.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::{Access, BlockDevice, MemDevice, Pool, PoolOptions};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::item::Timespec;
use ubtrfs_mkfs::{FeatureSet, Identity, MkfsOptions, Plan};

use super::*;
use crate::error::{CorruptItem, Error};
use crate::roots::test_roots;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const SECTOR: u64 = 4096;
pub(crate) const NODE: u64 = 16 << 10;
/// The running transaction.
pub(crate) const NOW: Transid = Transid(2);

/// Reports everything as free, except for the blocks of the new volume and ranges set by the test.
#[derive(Debug, Default)]
pub(crate) struct FakeSource {
    /// Start to end.
    used: Mutex<BTreeMap<u64, u64>>,
    pub(crate) loads: AtomicUsize,
    pub(crate) broken: Mutex<BTreeSet<Logical>>,
}

impl FakeSource {
    pub(crate) fn set_used(&self, start: u64, len: u64) {
        self.used.lock().insert(start, start + len);
    }

    pub(crate) fn set_free(&self, start: u64) {
        self.used.lock().remove(&start);
    }
}

impl FreeSpaceSource for FakeSource {
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if self.broken.lock().contains(&start) {
            return Err(Error::Corrupt {
                tree: ubtrfs_format::ids::RootId::FREE_SPACE_TREE,
                key: ubtrfs_format::key::Key::MIN,
                what: CorruptItem::Undecodable,
            });
        }
        let mut from = start.0;
        let end = start.0 + len;
        for (&used, &used_end) in self.used.lock().range(start.0..end) {
            if from < used {
                each(from, used - from);
            }
            from = used_end;
        }
        if from < end {
            each(from, end - from);
        }
        Ok(())
    }
}

pub(crate) struct TestVolume {
    pub(crate) space: Arc<Space>,
    pub(crate) source: Arc<FakeSource>,
    pub(crate) pool: Arc<Pool>,
}

pub(crate) fn profiles(data: Profile, metadata: Profile) -> MkfsOptions {
    MkfsOptions {
        data: Some(data),
        metadata: Some(metadata),
        ..MkfsOptions::default()
    }
}

pub(crate) fn mixed() -> MkfsOptions {
    let mut features = FeatureSet::default();
    features.incompat.insert(Incompat::MIXED_GROUPS);
    MkfsOptions {
        features,
        ..MkfsOptions::default()
    }
}

impl TestVolume {
    /// Creates a volume in memory with mkfs.
    pub(crate) fn new(options: &MkfsOptions, device_bytes: &[u64]) -> TestVolume {
        let device = |&len| Arc::new(MemDevice::new(len)) as Arc<dyn BlockDevice>;
        Self::new_on(options, device_bytes.iter().map(device).collect())
    }

    /// Creates a volume on these devices with mkfs.
    pub(crate) fn new_on(options: &MkfsOptions, devices: Vec<Arc<dyn BlockDevice>>) -> TestVolume {
        let device_bytes: Vec<u64> = devices.iter().map(|device| device.len_bytes()).collect();
        let identity = Identity::random(
            device_bytes.len(),
            Timespec {
                sec: 0.into(),
                nsec: 0.into(),
            },
        );
        let plan = Plan::new(options, &identity, &device_bytes).unwrap();
        let refs: Vec<&dyn BlockDevice> = devices.iter().map(|device| &**device).collect();
        plan.write(&refs, false).unwrap();
        let named = devices
            .into_iter()
            .enumerate()
            .map(|(number, device)| (PathBuf::from(format!("dev{number}")), device));
        let options = PoolOptions::default().access(Access::Write);
        let pool = Pool::from_devices(named.collect(), &options).unwrap();
        let roots = test_roots::open(pool);
        let source = Arc::new(FakeSource::default());
        for block in plan.blocks() {
            source.set_used(block.logical.0, block.bytes.len() as u64);
        }
        let pool = Arc::clone(roots.pool());
        let mut groups = Vec::new();
        roots
            .for_each_block_group(&mut |group| {
                groups.push((group.start, group.length, group.flags, group.used));
            })
            .unwrap();
        let params = SpaceParams::of(pool.superblock(), plan.identity().chunk_tree_uuid);
        let space = Space::new(
            params,
            groups,
            DeviceSet::new(&pool, &used_extents(&pool)),
            Arc::clone(&pool),
            Arc::clone(&source) as Arc<dyn FreeSpaceSource>,
        );
        TestVolume {
            space: Arc::new(space),
            source,
            pool,
        }
    }

    /// Creates a volume with single data and metadata on one device.
    pub(crate) fn single(device_bytes: u64) -> TestVolume {
        Self::new(&profiles(Profile::Single, Profile::Single), &[device_bytes])
    }

    pub(crate) fn totals(&self, kind: BlockGroupType) -> SpaceTotals {
        let totals = self.space.totals();
        *totals.iter().find(|totals| totals.kind == kind).unwrap()
    }

    pub(crate) fn group(&self, kind: BlockGroupType) -> Arc<BlockGroup> {
        let groups = self.space.groups();
        let group = groups.iter().find(|group| group.kind() == kind);
        Arc::clone(group.unwrap())
    }

    /// Reserves and allocates.
    pub(crate) fn data(&self, want: u64, min: u64) -> Result<(u64, u64), SpaceError> {
        self.space.reserve_data(want)?;
        let allocated = self.space.allocate_data(want, min, None, NOW);
        let taken = allocated.as_ref().map_or(0, |(_, len)| *len);
        self.space.release_data(want - taken);
        allocated.map(|(start, len)| (start.0, len))
    }
}

impl Space {
    /// Returns whether an allocation waits for a region that is being discarded.
    pub(crate) fn is_waited_for_region(&self) -> bool {
        self.trim_gate.is_stopped()
    }

    pub(crate) fn is_making_chunk(&self) -> bool {
        self.chunks.is_locked()
    }
}

/// Returns the device extents of the chunks of a pool.
pub(crate) fn used_extents(pool: &Pool) -> Vec<UsedExtent> {
    let chunks = pool.chunk_map().all();
    let extents = chunks.iter().flat_map(|chunk| {
        let stripes = chunk.stripes().iter();
        stripes.map(|stripe| (stripe.devid, stripe.physical, chunk.stripe_bytes()))
    });
    extents.collect()
}

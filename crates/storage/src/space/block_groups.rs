//! All block groups of a volume by address.
//!
//! The map is read constantly and rarely changes. Readers use a sorted snapshot and take no lock, so a lookup is as
//! fast with thousands of groups as with a few.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ubtrfs_format::ids::Logical;

use super::block_group::BlockGroup;

#[cfg(test)]
mod tests;

/// The starts have a vector of their own, so a search does not touch the groups.
#[derive(Debug, Default)]
struct Snapshot {
    starts: Vec<Logical>,
    groups: Arc<Vec<Arc<BlockGroup>>>,
}

impl Snapshot {
    fn of(groups: Vec<Arc<BlockGroup>>) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            starts: groups.iter().map(|group| group.start()).collect(),
            groups: Arc::new(groups),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct BlockGroups {
    snapshot: ArcSwap<Snapshot>,
    /// Held while a thread replaces the snapshot.
    changing: Mutex<()>,
    #[cfg(any(test, feature = "testing"))]
    lookups: std::sync::atomic::AtomicU64,
}

impl BlockGroups {
    pub(super) fn new(groups: Vec<Arc<BlockGroup>>) -> BlockGroups {
        let mut groups = groups;
        groups.sort_by_key(|group| group.start());
        BlockGroups {
            snapshot: ArcSwap::new(Snapshot::of(groups)),
            changing: Mutex::new(()),
            #[cfg(any(test, feature = "testing"))]
            lookups: Default::default(),
        }
    }

    /// Returns the group that contains an address.
    #[inline]
    pub(super) fn find(&self, logical: Logical) -> Option<Arc<BlockGroup>> {
        #[cfg(any(test, feature = "testing"))]
        self.lookups
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let snapshot = self.snapshot.load();
        let after = snapshot.starts.partition_point(|&start| start <= logical);
        let group = snapshot.groups.get(after.checked_sub(1)?)?;
        group.contains(logical).then(|| Arc::clone(group))
    }

    /// Returns all block groups in address order.
    pub(super) fn all(&self) -> Arc<Vec<Arc<BlockGroup>>> {
        Arc::clone(&self.snapshot.load().groups)
    }

    pub(super) fn insert(&self, group: Arc<BlockGroup>) {
        let _changing = self.changing.lock();
        let mut groups = Vec::clone(&self.all());
        let at = groups.partition_point(|other| other.start() < group.start());
        groups.insert(at, group);
        self.snapshot.store(Snapshot::of(groups));
    }

    /// Returns the number of lookups.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn lookups(&self) -> u64 {
        self.lookups.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Prevents other threads from replacing the snapshot.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn hold(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.changing.lock()
    }

    pub(super) fn remove(&self, start: Logical) {
        let _changing = self.changing.lock();
        let mut groups = Vec::clone(&self.all());
        groups.retain(|group| group.start() != start);
        self.snapshot.store(Snapshot::of(groups));
    }
}

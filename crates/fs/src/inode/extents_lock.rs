//! The lock of a file's extents, and the state that it protects.
//!
//! A thread that holds it is inside the volume's extent barrier. So no commit moves an extent between the look-up of its
//! address and the entry of items with this address.
//!
//! Locks: the barrier, then the lock itself.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ubtrfs_format::ids::Logical;
use ubtrfs_storage::{ExtentBarrier, InsideBarrier, lock};

use crate::error::Result;

/// State of a file's extents. A thread that holds its lock may change the extents.
#[derive(Debug, Default)]
pub(crate) struct FileExtentsState {
    /// Start addresses of extents that no other file refers to (NOCOW-1).
    own: HashSet<Logical>,
    /// The tree's last snapshot when `own` was filled.
    last_snapshot: u64,
}

/// The most extents in `own`.
const REMEMBERED: usize = 4096;

impl FileExtentsState {
    pub(crate) fn forget(&mut self) {
        self.own.clear();
    }

    /// Returns whether an extent is cached as exclusive to the file. The cache is only valid for the same
    /// `last_snapshot`.
    pub(crate) fn is_own(&mut self, extent: Logical, last_snapshot: u64) -> bool {
        if self.last_snapshot != last_snapshot {
            self.own.clear();
            self.last_snapshot = last_snapshot;
        }
        self.own.contains(&extent)
    }

    pub(crate) fn note_own(&mut self, extent: Logical) {
        if self.own.len() >= REMEMBERED {
            self.own.clear();
        }
        self.own.insert(extent);
    }
}

/// The lock of the extents of one file.
#[derive(Debug)]
pub(crate) struct FileExtentsLock {
    state: Mutex<FileExtentsState>,
    barrier: Arc<ExtentBarrier>,
}

/// The locked extents of a file.
#[derive(Debug)]
pub(crate) struct LockedExtents<'i> {
    state: MutexGuard<'i, FileExtentsState>,
    _inside: InsideBarrier<'i>,
}

impl FileExtentsLock {
    pub(super) fn new(barrier: &Arc<ExtentBarrier>) -> FileExtentsLock {
        FileExtentsLock {
            state: Mutex::default(),
            barrier: Arc::clone(barrier),
        }
    }

    /// Locks the extents.
    ///
    /// Errors: the thread must not wait.
    pub(crate) fn lock(&self) -> Result<LockedExtents<'_>> {
        let inside = self.barrier.enter()?;
        Ok(LockedExtents {
            state: lock::lock(&self.state)?,
            _inside: inside,
        })
    }

    /// Locks the extents if nothing has to be waited for.
    pub(crate) fn try_lock(&self) -> Option<LockedExtents<'_>> {
        let inside = self.barrier.try_enter()?;
        Some(LockedExtents {
            state: self.state.try_lock()?,
            _inside: inside,
        })
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

impl Deref for LockedExtents<'_> {
    type Target = FileExtentsState;

    fn deref(&self) -> &FileExtentsState {
        &self.state
    }
}

impl DerefMut for LockedExtents<'_> {
    fn deref_mut(&mut self) -> &mut FileExtentsState {
        &mut self.state
    }
}

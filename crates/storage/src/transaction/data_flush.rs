//! Data writes in progress, and the closing of a volume, which waits for them.
//!
//! Not here: the writes and flushes (`device_writes`).

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::flush_order::FlushOrder;

/// Data writes in progress.
#[derive(Debug, Default)]
pub(super) struct DataFlush {
    /// Held shared while data is written, exclusively to close the volume.
    way: RwLock<()>,
    pub(super) order: FlushOrder,
}

impl DataFlush {
    /// Returns whether data is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.way.is_locked()
    }

    /// Begins a data write, which lasts while the guard is held.
    pub(super) fn begin_write(&self) -> RwLockReadGuard<'_, ()> {
        self.way.read()
    }

    /// Waits for data writes in progress. Blocks new ones while the guard is held.
    pub(super) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        self.way.write()
    }
}

//! The turn of operations that exclude each other, as in the kernel.
//!
//! These are changes of the devices, and emptying a block group on request. Scrubs share a turn, and exclude them: a
//! scrub keeps using a device that leaves.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{DeviceSetError, Result};

/// The turn of exclusive operations.
#[derive(Debug, Default)]
pub struct ExclusiveTurn(RwLock<()>);

impl ExclusiveTurn {
    /// Begins an operation.
    ///
    /// Errors: another one is in progress, or a scrub.
    pub fn begin(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let turn = self.0.try_write();
        turn.ok_or_else(|| DeviceSetError::InProgress.into())
    }

    /// Begins a scrub. Several can run at the same time.
    ///
    /// Errors: an exclusive operation is in progress.
    pub fn begin_scrub(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let turn = self.0.try_read();
        turn.ok_or_else(|| DeviceSetError::InProgress.into())
    }
}

//! The turn of operations that exclude each other, as in the kernel: adding, removing, resizing and replacing a device.

use parking_lot::{Mutex, MutexGuard};

use crate::error::{DeviceSetError, Result};

/// The turn of exclusive operations.
#[derive(Debug, Default)]
pub struct ExclusiveTurn(Mutex<()>);

impl ExclusiveTurn {
    /// Begins an operation.
    ///
    /// Errors: another one is in progress.
    pub fn begin(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.0.try_lock();
        turn.ok_or_else(|| DeviceSetError::InProgress.into())
    }
}

//! The volume behind a mount, closed when the mount is gone.
//!
//! Of a block device the kernel has it closed before, while it has the device still (`FileSystem::destroy`).

use std::sync::Arc;

use ubtrfs_engine::Volume;

use super::companion::Companion;
use super::error::MountError;
use crate::adapter::CloseFailure;

#[derive(Debug)]
pub(super) struct Closing {
    volume: Arc<Volume>,
    /// Of the kernel's asking for it.
    failure: CloseFailure,
}

impl Closing {
    pub(super) fn new(volume: Arc<Volume>, failure: CloseFailure) -> Closing {
        Closing { volume, failure }
    }
}

impl Companion for Closing {
    fn end(&mut self) -> Result<(), MountError> {
        let before = self.failure.lock().take().map_or(Ok(()), Err);
        before.and(self.volume.close()).map_err(MountError::Close)
    }
}

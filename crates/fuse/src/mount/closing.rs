//! Closing the volume after its mount is gone.
//!
//! For a block device the kernel requests the close earlier, while it still holds the device (`Operation::Destroy`).

use std::sync::Arc;

use ubtrfs_fs::Volume;

use super::block::Reclaim;
use super::error::MountError;
use super::service::MountService;
use crate::adapter::CloseFailure;

#[derive(Debug)]
pub(super) struct Closing {
    volume: Arc<Volume>,
    /// The error of the close at the kernel's request.
    failure: CloseFailure,
    reclaim: Option<Reclaim>,
}

impl Closing {
    pub(super) fn new(
        volume: Arc<Volume>,
        failure: CloseFailure,
        reclaim: Option<Reclaim>,
    ) -> Closing {
        Closing {
            volume,
            failure,
            reclaim,
        }
    }
}

impl MountService for Closing {
    fn end(&mut self) -> Result<(), MountError> {
        if let Some(reclaim) = self.reclaim.take().filter(|_| !self.volume.is_closed())
            && let Err(error) = reclaim.claim(&self.volume)
        {
            // A write would go to another program's device now.
            self.volume.shutdown(&error);
        }
        let before = self.failure.lock().take().map_or(Ok(()), Err);
        before.and(self.volume.close()).map_err(MountError::Close)
    }
}

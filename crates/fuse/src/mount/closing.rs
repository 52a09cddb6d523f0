//! The volume behind a mount, closed when the mount is gone.

use std::sync::Arc;

use ubtrfs_engine::Volume;

use super::companion::Companion;
use super::error::MountError;

#[derive(Debug)]
pub(super) struct Closing {
    volume: Arc<Volume>,
}

impl Closing {
    pub(super) fn new(volume: Arc<Volume>) -> Closing {
        Closing { volume }
    }
}

impl Companion for Closing {
    fn end(&mut self) -> Result<(), MountError> {
        self.volume.close().map_err(MountError::Close)
    }
}

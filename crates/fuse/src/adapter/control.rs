//! Where commands on a mount are taken, which whoever sees the mount may ask.
//!
//! It is the value of an extended attribute of every file, which no list shows. In the namespace `system.` the kernel
//! leaves permissions to us, so that whoever mounted a volume may ask also where its directories are not theirs.

use std::sync::{Arc, OnceLock};

use crate::request::{Errno, Result};

/// Asked of any path in a mount.
pub const CONTROL_ATTRIBUTE: &str = "system.ubtrfs.control";

/// The address, once there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlAddress(Arc<OnceLock<Box<[u8]>>>);

impl ControlAddress {
    pub(crate) fn set(&self, address: &[u8]) {
        // A mount has one for its life.
        let _ = self.0.set(address.into());
    }

    pub(super) fn get(&self) -> Result<&[u8]> {
        self.0.get().map(AsRef::as_ref).ok_or(Errno::NODATA)
    }
}

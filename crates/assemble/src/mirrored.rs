//! RAID1: every member has all bytes.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use crate::copies::{CopyMap, Place};
use crate::fan_out::Devices;

/// Members, the preferred ones first.
#[derive(Debug)]
pub(crate) struct Mirrored {
    pub(crate) members: Vec<Option<Arc<dyn BlockDevice>>>,
    pub(crate) len_bytes: u64,
}

impl CopyMap for Mirrored {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn devices(&self) -> &Devices {
        &self.members
    }

    fn copies(&self) -> usize {
        self.members.len()
    }

    fn place(&self, offset: u64, copy: usize) -> Place {
        Place {
            device: copy,
            offset,
            len: self.len_bytes - offset,
        }
    }
}

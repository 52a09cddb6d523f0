//! Devices that join, leave or get another size: their items in the chunk tree and the device tree.

use ubtrfs_format::ids::RootId;

use super::Commit;
use crate::error::Result;
use crate::roots::device_errors_key;
use crate::space::DeviceChange;

impl Commit<'_> {
    /// Makes the requested changes of devices. The superblock of this commit has the new totals, and is written to the
    /// devices after the change.
    pub(super) fn change_devices(&mut self) -> Result<()> {
        for change in std::mem::take(&mut self.edits.device_changes) {
            let changed = self.manager.space.change_devices(&change)?;
            self.apply_owned(RootId::CHUNK_TREE, &[changed])?;
            if let DeviceChange::Remove { devid } = change {
                // A later device may get the same number.
                let key = device_errors_key(devid);
                if self.view(RootId::DEV_TREE)?.get(&key)?.is_some() {
                    self.apply_owned(RootId::DEV_TREE, &[(key, None)])?;
                }
            }
        }
        Ok(())
    }
}

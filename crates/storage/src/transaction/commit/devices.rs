//! Devices that join, leave or get another size: their items in the chunk tree and the device tree.

use ubtrfs_format::ids::RootId;
use zerocopy::IntoBytes;

use super::Commit;
use crate::error::Result;
use crate::roots::device_errors_key;
use crate::space::DeviceChange;
use crate::transaction::replace::dev_replace_key;

impl Commit<'_> {
    /// Makes the requested changes of devices. The superblock of this commit has the new totals, and is written to the
    /// devices after the change.
    pub(super) fn change_devices(&mut self) -> Result<()> {
        for change in std::mem::take(&mut self.edits.device_changes) {
            let changed = self.manager.space.change_devices(&change)?;
            self.apply_owned(RootId::CHUNK_TREE, changed.as_slice())?;
            match change {
                DeviceChange::Remove { devid } => {
                    // A later device may get the same number.
                    let key = device_errors_key(devid);
                    if self.view(RootId::DEV_TREE)?.get(&key)?.is_some() {
                        self.apply_owned(RootId::DEV_TREE, &[(key, None)])?;
                    }
                }
                DeviceChange::Replace { item, .. } => {
                    let bytes = item.as_bytes().to_vec();
                    self.apply_owned(RootId::DEV_TREE, &[(dev_replace_key(), Some(bytes))])?;
                }
                DeviceChange::Add { .. } | DeviceChange::Resize { .. } => {}
            }
        }
        Ok(())
    }
}

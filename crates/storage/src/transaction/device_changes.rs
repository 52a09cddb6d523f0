//! Requests to change the devices of a volume.

use ubtrfs_format::ids::RootId;

use super::manager::TransactionManager;
use super::reservation::EditEstimate;
use crate::error::Result;
use crate::space::DeviceChange;

impl TransactionManager {
    /// Makes a change of the devices durable: the running transaction is committed with it.
    ///
    /// Errors: no space for the item, or the commit fails.
    pub fn change_devices(&self, change: DeviceChange) -> Result<()> {
        let _entered = self.gate.enter();
        // A group must not be left with half of a change.
        self.check_may_commit()?;
        let estimate = EditEstimate::items(1).with_global_reserve();
        let reservation = self.reserve_metadata(RootId::CHUNK_TREE, estimate)?;
        let txn = self.join_transaction(reservation)?;
        txn.edit_superblock(|edits| edits.device_changes.push(change));
        drop(txn);
        self.commit_running()
    }
}

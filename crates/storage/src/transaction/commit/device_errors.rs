//! The error counts of devices, saved by the next commit after a change.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::DevStatsItem;
use zerocopy::IntoBytes;

use super::Commit;
use crate::error::Result;
use crate::roots::device_errors_key;

impl Commit<'_> {
    pub(super) fn save_device_errors(&mut self) -> Result<()> {
        let unsaved = self.roots.pool().take_unsaved_errors().into_iter();
        let changes: Vec<_> = unsaved
            .map(|(devid, counts)| {
                let item = DevStatsItem {
                    values: counts.map(Into::into),
                };
                (device_errors_key(devid), Some(item.as_bytes().to_vec()))
            })
            .collect();
        self.apply_owned(RootId::DEV_TREE, &changes)
    }
}

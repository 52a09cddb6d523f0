//! Quota groups of subvolumes.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{QgroupInfoItem, QgroupLimitItem};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::volume::Volume;

/// Bits of a limit item's `flags`, one for each limit that is set.
const LIMIT_MAX_REFERENCED: u64 = 1 << 0;
const LIMIT_MAX_EXCLUSIVE: u64 = 1 << 1;

/// The level-0 quota group of a subvolume. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubvolumeQuota {
    pub referenced: u64,
    pub exclusive: u64,
    pub max_referenced: Option<u64>,
    pub max_exclusive: Option<u64>,
}

impl SubvolumeQuota {
    /// Decodes a QGROUP_INFO and a QGROUP_LIMIT item.
    pub fn decode(info: &[u8], limit: Option<&[u8]>) -> Option<SubvolumeQuota> {
        let (info, _) = QgroupInfoItem::ref_from_prefix(info).ok()?;
        let mut quota = SubvolumeQuota {
            referenced: info.rfer.get(),
            exclusive: info.excl.get(),
            max_referenced: None,
            max_exclusive: None,
        };
        let limit = limit.and_then(|item| QgroupLimitItem::ref_from_prefix(item).ok());
        if let Some((limit, _)) = limit {
            let set = |flag, max| (limit.flags.get() & flag != 0).then_some(max);
            quota.max_referenced = set(LIMIT_MAX_REFERENCED, limit.max_rfer.get());
            quota.max_exclusive = set(LIMIT_MAX_EXCLUSIVE, limit.max_excl.get());
        }
        Some(quota)
    }
}

impl Volume {
    /// Returns the quota of a subvolume, or None if quotas are off or do not cover it.
    pub fn subvolume_quota(&self, id: RootId) -> Result<Option<SubvolumeQuota>> {
        let Some(tree) = self.find_tree(RootId::QUOTA_TREE)? else {
            return Ok(None);
        };
        let Some(item) = tree.view.get(&Key::new(0, KeyType::QGROUP_INFO, id.0))? else {
            return Ok(None);
        };
        let limit = tree.view.get(&Key::new(0, KeyType::QGROUP_LIMIT, id.0))?;
        Ok(SubvolumeQuota::decode(&item, limit.as_deref()))
    }
}

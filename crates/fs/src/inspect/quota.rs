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

/// The sizes and limits of the quota group that belongs to one subvolume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumeQuota {
    /// All bytes that the subvolume refers to.
    pub referenced_bytes: u64,
    /// The bytes that no other subvolume refers to.
    pub exclusive_bytes: u64,
    /// The limit of `referenced_bytes`, if there is one.
    pub max_referenced_bytes: Option<u64>,
    /// The limit of `exclusive_bytes`, if there is one.
    pub max_exclusive_bytes: Option<u64>,
}

/// Decodes a QGROUP_INFO and a QGROUP_LIMIT item.
pub fn decode_quota(info: &[u8], limit: Option<&[u8]>) -> Option<SubvolumeQuota> {
    let (info, _) = QgroupInfoItem::ref_from_prefix(info).ok()?;
    let mut quota = SubvolumeQuota {
        referenced_bytes: info.rfer.get(),
        exclusive_bytes: info.excl.get(),
        max_referenced_bytes: None,
        max_exclusive_bytes: None,
    };
    let limit = limit.and_then(|item| QgroupLimitItem::ref_from_prefix(item).ok());
    if let Some((limit, _)) = limit {
        let set = |flag, max| (limit.flags.get() & flag != 0).then_some(max);
        quota.max_referenced_bytes = set(LIMIT_MAX_REFERENCED, limit.max_rfer.get());
        quota.max_exclusive_bytes = set(LIMIT_MAX_EXCLUSIVE, limit.max_excl.get());
    }
    Some(quota)
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
        Ok(decode_quota(&item, limit.as_deref()))
    }
}

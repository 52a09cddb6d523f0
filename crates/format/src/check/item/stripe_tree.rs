//! RAID_STRIPE: the device locations of a data extent.

use zerocopy::FromBytes;

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::features::Incompat;
use crate::item::RaidStride;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRaidStripe {
    #[error("start {0} is not aligned to the sector")]
    Alignment(u64),
    #[error("RAID_STRIPE without the feature raid-stripe-tree")]
    NoFeature,
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    if !context.is_sector_aligned(slot.key.objectid) {
        return Err(CorruptRaidStripe::Alignment(slot.key.objectid).into());
    }
    if !context.incompat.contains(Incompat::RAID_STRIPE_TREE) {
        return Err(CorruptRaidStripe::NoFeature.into());
    }
    if <[RaidStride]>::ref_from_bytes(slot.bytes).is_err() {
        return Err(slot.wrong_size(size_of::<RaidStride>()));
    }
    Ok(())
}

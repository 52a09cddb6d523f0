//! Which subvolume of the destination a stream means: as the parent of a snapshot, or as a source of clones.
//!
//! Those that were received from the subvolume that is named come first, then that subvolume itself. The transaction in
//! the stream only prefers one among several. A later snapshot of a subvolume moves its transaction on at the sender, and
//! not at the receiver.

use ubtrfs_engine::SubvolumeInfo;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItemFlags;

use super::target::{Sent, TargetError};

/// The subvolume that `sent` means. None if there is none.
///
/// Errors: all that it could be are writable, so that they may have changed.
pub fn find_sent(
    subvolumes: &[SubvolumeInfo],
    sent: &Sent,
    is_reachable: impl Fn(&SubvolumeInfo) -> bool,
) -> Result<Option<RootId>, TargetError> {
    let is_there = |info: &&SubvolumeInfo| info.item.refs.get() > 0 && !sent.uuid.is_nil();
    let received = subvolumes
        .iter()
        .filter(|info| info.item.received_uuid == sent.uuid)
        .filter(is_there);
    let own = subvolumes
        .iter()
        .filter(|info| info.item.uuid == sent.uuid)
        .filter(is_there);
    let is_read_only = |info: &SubvolumeInfo| info.item.flags().contains(RootItemFlags::RDONLY);
    let rank = |info: &SubvolumeInfo| {
        let is_same = info.item.stransid.get() == sent.ctransid.0;
        (!is_read_only(info), !is_reachable(info), !is_same, info.id)
    };
    let best = received.min_by_key(|info| rank(info));
    let best = match best {
        Some(info) if is_read_only(info) => Some(info),
        best => own.min_by_key(|info| rank(info)).or(best),
    };
    match best {
        None => Ok(None),
        Some(info) if !is_read_only(info) => Err(TargetError::Modified {
            id: info.id,
            uuid: sent.uuid,
        }),
        Some(info) if !is_reachable(info) => Err(TargetError::Unreachable(info.id)),
        Some(info) => Ok(Some(info.id)),
    }
}

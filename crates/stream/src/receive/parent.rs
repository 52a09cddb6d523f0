//! Identification of the subvolume that a stream refers to: the parent of a snapshot, or a clone source.
//!
//! Subvolumes received from the named one are preferred, then the subvolume itself. The transid in the stream only
//! selects among several matches. It is not required to match, because a later snapshot changes a subvolume's transid
//! at the sender but not at the receiver.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItemFlags;
use ubtrfs_fs::SubvolumeInfo;

use super::target::{Sent, TargetError};

/// Finds the subvolume identified by `sent`. Returns None if there is none.
///
/// Errors: all matches are writable and may have changed, or no read-only match is reachable.
pub fn find_sent<'a>(
    subvolumes: impl IntoIterator<Item = &'a SubvolumeInfo>,
    sent: &Sent,
    is_reachable: impl Fn(&SubvolumeInfo) -> bool,
) -> Result<Option<RootId>, TargetError> {
    let is_read_only = |info: &SubvolumeInfo| info.item.flags().contains(RootItemFlags::RDONLY);
    let meant = subvolumes.into_iter().filter(|info| is_meant(info, sent));
    let best = meant.min_by_key(|info| {
        let is_received = info.item.received_uuid == sent.uuid;
        let is_same = info.item.stransid.get() == sent.ctransid.0;
        let is_of_use = [is_read_only(info), is_reachable(info), is_received, is_same];
        (is_of_use.map(|is| !is), info.id)
    });
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

/// Returns whether a subvolume is the sent one, or was received from it.
pub(super) fn is_meant(info: &SubvolumeInfo, sent: &Sent) -> bool {
    let uuids = [info.item.received_uuid, info.item.uuid];
    info.item.refs.get() > 0 && !sent.uuid.is_nil() && uuids.contains(&sent.uuid)
}

#[cfg(test)]
mod tests {
    use ubtrfs_format::ids::Transid;
    use ubtrfs_format::item::RootItem;
    use ubtrfs_format::uuid::Uuid;
    use zerocopy::FromZeros;

    use super::*;

    const SENT: Sent = Sent {
        uuid: Uuid([7; 16]),
        ctransid: Transid(3),
    };

    fn subvolume(id: u64, change: impl FnOnce(&mut RootItem)) -> SubvolumeInfo {
        let mut item = RootItem::new_zeroed();
        item.refs = 1.into();
        item.flags = RootItemFlags::RDONLY.bits().into();
        change(&mut item);
        SubvolumeInfo {
            id: RootId(id),
            item,
            snapshot_transid: None,
            place: None,
        }
    }

    fn received(id: u64, stransid: u64) -> SubvolumeInfo {
        subvolume(id, |item| {
            item.received_uuid = SENT.uuid;
            item.stransid = stransid.into();
        })
    }

    fn own(id: u64) -> SubvolumeInfo {
        subvolume(id, |item| item.uuid = SENT.uuid)
    }

    fn writable(mut of: SubvolumeInfo) -> SubvolumeInfo {
        of.item.flags = 0.into();
        of
    }

    #[test]
    fn usable_parents_come_before_the_best_match() {
        let find = |all: &[SubvolumeInfo]| {
            let found = find_sent(all, &SENT, |info| info.id.0 < 300);
            found.map(|found| found.map(|id| id.0))
        };
        let all = [
            own(256),
            received(257, 9),
            received(258, 3),
            received(259, 3),
        ];
        assert_eq!(find(&all).unwrap(), Some(258));
        assert_eq!(find(&all[..2]).unwrap(), Some(257));
        assert_eq!(find(&all[..1]).unwrap(), Some(256));
        assert_eq!(find(&[own(256), received(300, 3)]).unwrap(), Some(256));
        let changed = [writable(received(257, 3)), received(258, 9)];
        assert_eq!(find(&changed).unwrap(), Some(258));
        assert!(matches!(
            find(&changed[..1]),
            Err(TargetError::Modified {
                id: RootId(257),
                ..
            })
        ));
        assert!(matches!(
            find(&[writable(own(256)), received(300, 3)]),
            Err(TargetError::Unreachable(RootId(300)))
        ));
        let deleted = subvolume(260, |item| {
            item.refs = 0.into();
            item.uuid = SENT.uuid;
        });
        assert_eq!(find(&[deleted]).unwrap(), None);
    }
}

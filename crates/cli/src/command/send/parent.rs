//! Which of the clone sources is the parent where none is named.

use ubtrfs_engine::Snapshot;
use ubtrfs_format::uuid::Uuid;

/// The facts that relate subvolumes to each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) uuid: Uuid,
    pub(super) parent_uuid: Uuid,
    pub(super) ctransid: u64,
}

impl Identity {
    pub(super) fn of(snapshot: &Snapshot) -> Identity {
        let item = snapshot.item();
        Identity {
            uuid: item.uuid,
            parent_uuid: item.parent_uuid,
            ctransid: item.ctransid.get(),
        }
    }
}

/// Chooses as btrfs-progs does: the subvolume's own parent, else the sibling that was changed at the nearest time.
pub(super) fn choose(subvolume: &Identity, sources: &[Identity]) -> Option<usize> {
    if subvolume.parent_uuid.is_nil() {
        return None;
    }
    let is_parent = |source: &Identity| source.uuid == subvolume.parent_uuid;
    sources.iter().position(is_parent).or_else(|| {
        let siblings = sources.iter().enumerate();
        siblings
            .filter(|(_, source)| source.parent_uuid == subvolume.parent_uuid)
            .min_by_key(|(_, source)| source.ctransid.abs_diff(subvolume.ctransid))
            .map(|(index, _)| index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(uuid: u8, parent: u8, ctransid: u64) -> Identity {
        Identity {
            uuid: Uuid([uuid; 16]),
            parent_uuid: Uuid([parent; 16]),
            ctransid,
        }
    }

    #[test]
    fn the_parent_comes_before_the_nearest_sibling() {
        let sent = identity(1, 9, 50);
        let (near, far) = (identity(2, 9, 45), identity(3, 9, 10));
        assert_eq!(choose(&sent, &[far, near]), Some(1));
        assert_eq!(choose(&sent, &[near, identity(9, 0, 1)]), Some(1));
        assert_eq!(choose(&sent, &[identity(4, 5, 50)]), None);
        assert_eq!(choose(&identity(1, 0, 50), &[identity(2, 0, 50)]), None);
    }
}

//! Volumes that lack a valid free-space tree, and have no room for one.

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::superblock::Superblock;

use super::*;

const GIB: u64 = 1 << 30;
const BYTES: u64 = 32 * GIB;
/// As far apart as leaves a block group so many free ranges that no more of them would be told by bitmaps.
const EXTENT_EVERY: u64 = 3 * MIB / 4;

impl Place {
    /// Extents all over the devices: the free-space tree is large.
    fn spread_out() -> Place {
        const DATA: u64 = BYTES / 8 * 7;
        let device = new_device(BYTES, "^block-group-tree");
        let mut place = Place::empty(device, DATA / EXTENT_EVERY);
        let space = place.space();
        let running = place.volume.writer().unwrap().running_transid();
        space.reserve_data(DATA).unwrap();
        let groups = space.groups();
        let data = groups
            .iter()
            .filter(|group| group.kind() == SpaceKind::Data);
        let mut places = Vec::new();
        for group in data {
            for at in (group.start().0..group.end().0).step_by(EXTENT_EVERY as usize) {
                if (places.len() as u64) < place.extents {
                    let hint = Some(Logical(at));
                    let (start, _) = space.allocate_data(SECTOR, SECTOR, hint, running).unwrap();
                    places.push(start);
                }
            }
        }
        space.release_data(DATA - places.len() as u64 * SECTOR);
        place.scatter(&places);
        place
    }

    /// Opens the volume without `flags` of its free-space tree.
    fn reopen_without(self, flags: CompatRo) -> Place {
        let mut sb = Superblock::clone(&self.volume.superblock());
        sb.compat_ro_flags = (sb.compat_ro() - flags).bits().into();
        self.volume.pool().commit_superblock(&sb).unwrap();
        let Place { device, volume, .. } = self;
        drop(volume);
        let volume = open(&device);
        Place {
            device,
            volume,
            ..self
        }
    }

    fn has_valid_tree(&self) -> bool {
        let compat = self.volume.superblock().compat_ro();
        compat.contains(CompatRo::FREE_SPACE_TREE_VALID)
    }
}

#[test]
fn full_volume_goes_on_without_a_free_space_tree() {
    let mut place = Place::spread_out();
    let tree = place.volume.tree(RootId::FREE_SPACE_TREE).unwrap();
    let tree_bytes = tree.item().bytes_used.get();
    drop(tree);
    assert!(tree_bytes > 3 * MIB / 4, "{tree_bytes}");
    place = place.reopen_without(CompatRo::FREE_SPACE_TREE_VALID);
    place.leave(tree_bytes);
    for sectors in [0..5, 1000..1010] {
        for sector in sectors {
            assert!(place.touch(sector));
        }
        place.volume.sync().unwrap();
    }
    let size = (place.extents - 500) * SECTOR;
    place.volume.truncate(place.file, size).unwrap();
    place.volume.sync().unwrap();
    assert!(!place.has_valid_tree());
    check(&place.device);

    // There is room now, and the next commit makes use of it.
    place.give_back();
    assert!(place.touch(0));
    place.volume.sync().unwrap();
    assert!(place.has_valid_tree());
    place.assert_sound();
}

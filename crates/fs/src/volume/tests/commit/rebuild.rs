//! Volumes without a valid free-space tree, and without room for one.

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::objectid;
use ubtrfs_format::item::FreeSpaceHeader;
use ubtrfs_format::superblock::Superblock;
use zerocopy::FromZeros;

use super::*;

const GIB: u64 = 1 << 30;
const BYTES: u64 = 32 * GIB;
/// The distance between extents. It gives a block group almost the most free ranges without bitmaps.
const EXTENT_EVERY: u64 = 3 * MIB / 4;

impl Place {
    /// Creates a volume whose extents are spread over the devices, so that the free-space tree is large.
    fn spread_out() -> Place {
        const DATA: u64 = BYTES / 8 * 7;
        let device = new_device(BYTES, "^block-group-tree");
        let mut place = Place::empty(device, DATA / EXTENT_EVERY);
        let space = place.space();
        let running = place
            .volume
            .inodes
            .transactions()
            .unwrap()
            .running_transid();
        space.reserve_data(DATA).unwrap();
        let groups = space.groups();
        let data = groups
            .iter()
            .filter(|group| group.kind() == BlockGroupType::Data);
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

    /// Reopens the volume with other flags.
    fn reopen(self, options: &OpenOptions, flags: impl FnOnce(CompatRo) -> CompatRo) -> Place {
        let Place { device, volume, .. } = self;
        volume.close().unwrap();
        let mut sb = Superblock::clone(&volume.superblock());
        sb.compat_ro_flags = flags(sb.compat_ro()).bits().into();
        volume.pool().commit_superblock(&sb).unwrap();
        drop(volume);
        let options = options.clone().writable(true).commit_interval(None);
        let volume = Volume::from_devices(devices(&device), &options).unwrap();
        Place {
            device,
            volume,
            taken: Vec::new(),
            ..self
        }
    }

    /// Reopens the volume with an invalid free-space tree and no room for a new one, and changes the free
    /// space.
    fn reopen_without_tree(self) -> Place {
        let tree = self.volume.tree(RootId::FREE_SPACE_TREE).unwrap();
        let tree_bytes = tree.item().bytes_used.get();
        drop(tree);
        assert!(tree_bytes > 3 * MIB / 4, "{tree_bytes}");
        let valid = CompatRo::FREE_SPACE_TREE_VALID;
        let mut place = self.reopen(&OpenOptions::new(), |flags| flags - valid);
        place.leave(tree_bytes);
        place.change_what_is_free();
        assert!(!place.has_valid_tree());
        check(&place.device);
        place
    }

    fn change_what_is_free(&mut self) {
        for sectors in [0..5, 1000..1010] {
            for sector in sectors {
                assert!(self.touch(sector));
            }
            self.volume.sync().unwrap();
        }
        self.extents -= 500;
        let size = self.extents * SECTOR;
        self.volume.truncate(self.file, size).unwrap();
        self.volume.sync().unwrap();
    }

    /// Asserts that, with room, the next commit rebuilds the tree.
    fn assert_is_rebuilt(mut self) {
        self.release();
        assert!(self.touch(0));
        self.volume.sync().unwrap();
        assert!(self.has_valid_tree());
        self.assert_sound();
    }

    fn has_valid_tree(&self) -> bool {
        let compat = self.volume.superblock().compat_ro();
        compat.contains(CompatRo::FREE_SPACE_TREE_VALID)
    }
}

#[test]
fn full_volume_continues_without_a_free_space_tree() {
    Place::spread_out()
        .reopen_without_tree()
        .assert_is_rebuilt();
}

/// The tree is also wrong, although marked as valid.
#[test]
fn full_volume_continues_without_a_free_space_tree_that_is_not_trusted() {
    let mut place = Place::spread_out().reopen_without_tree();
    let room = place.metadata().free_bytes;
    let options = OpenOptions::new().clear_free_space_tree(true);
    place = place.reopen(&options, |flags| flags | CompatRo::FREE_SPACE_TREE_VALID);
    assert!(place.has_valid_tree());
    place.leave(room);
    place.change_what_is_free();
    assert!(!place.has_valid_tree());
    check(&place.device);
    place.assert_is_rebuilt();
}

/// The headers of these caches contain subvolume ids as file numbers.
#[test]
fn only_items_of_files_go_with_caches_of_free_space() {
    let place = Place::new(100);
    let volume = &place.volume;
    let tree = volume.roots.tree_for_commit(RootId::ROOT_TREE).unwrap();
    let subvolumes = [RootId::FS_TREE, place.file.root];
    for (number, id) in subvolumes.into_iter().enumerate() {
        let header = FreeSpaceHeader {
            location: Key::new(id.0, KeyType::INODE_ITEM, 0).into(),
            ..FreeSpaceHeader::new_zeroed()
        };
        let key = Key::new(objectid::FREE_SPACE, KeyType::UNTYPED, number as u64);
        let reservation = volume
            .inodes
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
            .unwrap();
        let txn = volume.inodes.join_transaction(reservation).unwrap();
        txn.insert(&tree, key, header.as_bytes());
    }
    drop(tree);
    volume.sync().unwrap();
    let options = OpenOptions::new().clear_free_space_tree(true);
    let place = place.reopen(&options, |flags| flags);
    place.volume.sync().unwrap();
    let place = place.reopen(&OpenOptions::new(), |flags| flags);
    assert_eq!(place.extents_before(u64::MAX), 100);
    place.assert_sound();
}

//! Volumes on md arrays and LVM volumes, opened by the disks that hold them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ubtrfs::{Checker, DeviceAccess, Volume, scan_layers, sibling_devices};
use ubtrfs_sim::{LvmGroup, LvmSegment, LvmVolume, MdArray, MdMetadata, Scratch};

const VOLUME_BYTES: u64 = 128 << 20;

/// Creates an image with a file that has its label as content.
fn image(folder: &Path, label: &str) -> Vec<u8> {
    let path = folder.join(label);
    let options = ubtrfs::MkfsOptions {
        label: label.as_bytes().to_vec(),
        ..ubtrfs::MkfsOptions::default()
    };
    let volume = Volume::builder()
        .mkfs(options)
        .create(&[&path], VOLUME_BYTES);
    let volume = volume.expect("a new volume");
    volume.root().write("/name", label).expect("there is room");
    volume.close().expect("durable");
    fs::read(&path).expect("readable")
}

fn write_disks(folder: &Path, disks: Vec<Vec<u8>>) -> Vec<PathBuf> {
    let paths = (0..disks.len()).map(|number| folder.join(format!("disk{number}.img")));
    let paths: Vec<PathBuf> = paths.collect();
    for (path, disk) in paths.iter().zip(disks) {
        fs::write(path, disk).expect("there is room");
    }
    paths
}

#[test]
fn disks_of_an_array_are_opened_like_devices() {
    let folder = Scratch::new().expect("there is room");
    let content = image(folder.path(), "data");
    for metadata in [MdMetadata::AfterStart, MdMetadata::Version0] {
        let array = MdArray {
            metadata,
            ..MdArray::new(5, 2, 3)
        };
        let disks = write_disks(folder.path(), array.write(&content));
        let reader = || Volume::builder().read_only(true);
        let name = |volume: Volume| volume.root().read_to_string("/name").expect("readable");
        assert_eq!(name(reader().open(&disks).expect("all disks")), "data");
        assert_eq!(name(reader().open(&disks[1..]).expect("two")), "data");
        assert_eq!(
            reader().open(&disks[..1]).expect_err("one of three").kind(),
            ErrorKind::InvalidData
        );
        let others = sibling_devices(&disks[..1], DeviceAccess::Read).expect("found");
        assert_eq!(others, disks[1..]);
        let found = reader().scan(others).open(&disks[..1]);
        assert_eq!(name(found.expect("the others are found")), "data");
        let report = Checker::new().scan([folder.path()]).check(&disks[2]);
        assert!(report.expect("readable").is_clean());

        let before: Vec<Vec<u8>> = disks.iter().map(|d| fs::read(d).expect("there")).collect();
        let refused = Volume::builder().open(&disks).expect_err("never written");
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        assert!(refused.to_string().contains("assembled from members of md"));
        let after: Vec<Vec<u8>> = disks.iter().map(|d| fs::read(d).expect("there")).collect();
        assert!(before == after, "the disks have changed");
    }
}

#[test]
fn stale_member_of_a_mirror_is_not_read_alone() {
    let folder = Scratch::new().expect("there is room");
    let (old, new) = (image(folder.path(), "old"), image(folder.path(), "new"));
    let array = MdArray {
        metadata: MdMetadata::End,
        ..MdArray::new(1, 0, 2)
    };
    let mut members = array.write(&new);
    members[0] = array.write(&old).swap_remove(0);
    array.edit(&mut members[1], |sb| sb[200] = 50);
    let disks = write_disks(folder.path(), members);
    // It begins like a device of a volume. Only md knows that it is old.
    let options = || Volume::builder().read_only(true);
    let volume = options().scan(&disks[1..]).open(&disks[..1]);
    assert_eq!(volume.expect("the newer member").label(), "new");
}

#[test]
fn one_of_several_volumes_is_chosen() {
    let folder = Scratch::new().expect("there is room");
    let contents = ["data", "media"].map(|label| image(folder.path(), label));
    let extents = VOLUME_BYTES / LvmGroup::extent_bytes();
    let volumes = ["lv1", "lv2"].into_iter().zip([0, extents]);
    let volumes = volumes.map(|(name, start)| LvmVolume {
        name: name.to_owned(),
        segments: vec![LvmSegment::linear(0, start, extents)],
    });
    let group = LvmGroup::new("vg1", volumes.collect());
    let mut disks = vec![vec![
        0;
        ((2 * extents + 1) * LvmGroup::extent_bytes()) as usize
    ]];
    group.write(&mut disks, &[&contents[0], &contents[1]]);
    let disks = write_disks(folder.path(), disks);
    let open = |name: Option<&str>| {
        let builder = Volume::builder().read_only(true);
        match name {
            Some(name) => builder.volume(name).open(&disks),
            None => builder.open(&disks),
        }
    };
    let refused = open(None).expect_err("two volumes");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("vg1/lv2"), "{refused}");
    for name in ["media", "vg1/lv2"] {
        assert_eq!(open(Some(name)).expect("chosen").label(), "media");
    }
    assert_eq!(
        open(Some("none")).expect_err("no such volume").kind(),
        ErrorKind::NotFound
    );
    let by_name = Volume::builder().set("volume", "data").expect("an option");
    let volume = by_name.read_only(true).open(&disks).expect("chosen");
    assert_eq!(volume.label(), "data");
    let check = Checker::new().volume("media").check(&disks[0]);
    assert!(check.expect("readable").is_clean());

    let found = scan_layers(&disks, &[]).expect("readable");
    let found: Vec<_> = found
        .iter()
        .map(|volume| (volume.label.clone(), volume.devices[0].path.clone()))
        .collect();
    assert_eq!(
        found,
        [
            ("data".into(), PathBuf::from("vg1/lv1")),
            ("media".into(), "vg1/lv2".into())
        ]
    );
}

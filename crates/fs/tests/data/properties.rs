//! The data of files with the property `btrfs.compression`, written by the engine and by the kernel.

use std::collections::BTreeMap;

use rustix::fs::XattrFlags;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{NewInode, OpenOptions, Volume, XattrMode};
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec};

const NAME: &str = "btrfs.compression";
const LEN_BYTES: usize = 128 << 10;

/// The kernel compares only the beginning of a value.
const VALUES: [(&str, Compression); 7] = [
    ("zlib", Compression::Zlib),
    ("lzo", Compression::Lzo),
    ("zstd", Compression::Zstd),
    ("zstd:3", Compression::Zstd),
    ("zlib:9", Compression::Zlib),
    ("lzo:1", Compression::Lzo),
    ("zstdandmore", Compression::Zstd),
];

/// Returns the algorithm of each file in the top level, whose names contain the expected one.
fn found(volume: &Volume) -> BTreeMap<String, u8> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    let algorithm = |name: &str| {
        let id = volume.lookup(top, name.as_bytes()).unwrap().unwrap();
        let mut cursor = tree.view.cursor();
        let first = Key::new(id.ino.0, KeyType::EXTENT_DATA, 0);
        assert!(cursor.seek(&first).unwrap());
        let (key, bytes) = cursor.current().unwrap();
        assert_eq!(key, first);
        FileExtent::decode(bytes).unwrap().head().compression
    };
    let names = VALUES.map(|(name, _)| (name.to_owned(), algorithm(name)));
    names.into_iter().collect()
}

#[test]
fn property_names_an_algorithm_by_its_beginning() {
    if !kernel::or_skip("the property of files") {
        return;
    }
    let wanted = VALUES.map(|(name, kind)| (name.to_owned(), kind as u8));
    let wanted: BTreeMap<String, u8> = wanted.into_iter().collect();
    let content = vec![7; LEN_BYTES];

    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = made.mount("").unwrap();
    for (value, _) in VALUES {
        let path = mount.path().join(value);
        std::fs::write(&path, b"").unwrap();
        rustix::fs::setxattr(&path, NAME, value.as_bytes(), XattrFlags::empty()).unwrap();
        std::fs::write(&path, &content).unwrap();
    }
    mount.unmount().unwrap();
    let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
    assert_eq!(found(&volume), wanted, "the kernel's");
    let features = volume.superblock().incompat();
    assert!(features.contains(Incompat::COMPRESS_LZO | Incompat::COMPRESS_ZSTD));
    drop(volume);

    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let options = OpenOptions::new().writable(true);
    let volume = Volume::open(made.devices(), &options).unwrap();
    assert_ne!(
        volume.superblock().incompat(),
        features,
        "nothing is compressed yet"
    );
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for (value, _) in VALUES {
        let new = NewInode::file(0o644);
        let id = volume.create(top, value.as_bytes(), &new).unwrap();
        let (name, bytes) = (NAME.as_bytes(), value.as_bytes());
        volume.set_xattr(id, name, bytes, XattrMode::Any).unwrap();
        volume.write(id, 0, &content).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!(found(&volume), wanted, "ours");
    assert_eq!(volume.superblock().incompat(), features, "ours");
    drop(volume);
    made.check().unwrap();
    let mount = made.mount("").unwrap();
    for (value, _) in VALUES {
        assert!(std::fs::read(mount.path().join(value)).unwrap() == content);
    }
    mount.unmount().unwrap();
}

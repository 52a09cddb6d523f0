//! Each test plants one fault into a log written by the kernel.

use std::path::PathBuf;

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{DirEntries, FileExtent, FileKind, InodeFlags, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::kernel::{self, CutVolume, MkfsSpec};
use zerocopy::FromBytes;

use super::check_it;
use super::editing::{edit, edit_key, extent, find, inode, insert, is_plain, items, remove};
use crate::logs::{WARM, sh};

const LOG: RootId = RootId::TREE_LOG;
const BEFORE: &str = "mkdir d d/e d/e/f; echo old > d/old; touch d/gone; \
     head -c 64k /dev/urandom > d/data; btrfs subvolume create d/s > /dev/null";
const THEN: &str = "head -c 200k /dev/urandom > d/new; ln -s target d/link; touch d/e/empty; \
     rm d/gone; chmod 700 d/e/f; sync d/new d/e/f d/e d";

/// A volume with a log of files, directories, and deletions in a directory with a subvolume.
pub(crate) struct Logged {
    pub(crate) volume: Crafted,
}

impl Logged {
    pub(crate) fn new() -> Logged {
        let spec = MkfsSpec::new().device_bytes(1 << 30);
        let mut volume = CutVolume::make(&spec, "commit=600").unwrap();
        for script in [BEFORE, WARM, THEN] {
            sh(volume.path(), script);
        }
        let devices: Vec<PathBuf> = volume.cut().unwrap();
        volume.end().unwrap();
        let volume = Crafted::load(&devices);
        assert!(volume.superblock().has_log());
        Logged { volume }
    }
}

/// Returns the inode with this name.
fn ino(volume: &mut Crafted, wanted: &str) -> u64 {
    let mut all = items(volume, LOG);
    all.extend(items(volume, RootId::FS_TREE));
    let entries = all
        .iter()
        .filter(|(key, _)| key.item_type == KeyType::DIR_INDEX);
    let mut found = entries.flat_map(|(_, bytes)| DirEntries::new(bytes));
    let found = found.find(|entry| entry.name == wanted.as_bytes());
    found
        .unwrap_or_else(|| panic!("no {wanted}"))
        .location()
        .objectid
}

fn inode_key(number: u64) -> Key {
    Key::new(number, KeyType::INODE_ITEM, 0)
}

/// Returns the index of a directory entry of the last commit.
fn committed_index(volume: &mut Crafted, child: u64) -> u64 {
    let leads_there = |key: Key, bytes: &[u8]| {
        key.item_type == KeyType::DIR_INDEX
            && DirEntries::new(bytes).any(|entry| {
                let location = entry.location();
                (location.objectid, location.item_type) == (child, KeyType::INODE_ITEM)
            })
    };
    find(volume, RootId::FS_TREE, leads_there).0.offset
}

fn dir_index(child: Key, kind: FileKind, name: &[u8]) -> Vec<u8> {
    let mut bytes = child.objectid.to_le_bytes().to_vec();
    bytes.push(child.item_type.0);
    bytes.extend(child.offset.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.push(kind.raw());
    bytes.extend(name);
    bytes
}

fn inode_ref(index: u64, name: &[u8]) -> Vec<u8> {
    let mut bytes = index.to_le_bytes().to_vec();
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend(name);
    bytes
}

fn is_ref_of(child: u64) -> impl Fn(Key, &[u8]) -> bool {
    move |key, _| (key.objectid, key.item_type) == (child, KeyType::INODE_REF)
}

/// Changes the headers of the log's blocks and the root item that refers to them.
fn edit_log_block(volume: &mut Crafted, owner: RootId, generation_less: u64) {
    let bytenr = {
        let (_, bytes) = find(volume, LOG, |key, _| key.item_type == KeyType::ROOT_ITEM);
        RootItem::decode(&bytes).unwrap().bytenr.get()
    };
    let is_root = |key: Key, _: &[u8]| key.item_type == KeyType::ROOT_ITEM;
    edit(volume, LOG, is_root, |_, bytes| {
        let root = RootItem::mut_from_bytes(bytes).unwrap();
        root.generation = (root.generation.get() - generation_less).into();
        root.generation_v2 = root.generation;
    });
    volume.edit_header(bytenr, |header| {
        header.owner = owner.0.into();
        header.generation = (header.generation.get() - generation_less).into();
    });
}

/// The expected numbers, a word that distinguishes faults with one number, and the function that plants the fault.
pub(crate) type Planted = (&'static [u16], &'static str, fn(&mut Crafted));

const BLOCKS: &[Planted] = &[
    (&[301], "checksum", |volume| {
        let place = volume.places(volume.superblock().log_root.get()).to_vec();
        for place in place {
            volume.write(place, &[1; 32]);
        }
    }),
    (&[901], "owner", |volume| {
        edit_log_block(volume, RootId(5), 0)
    }),
    (&[902], "generation", |volume| {
        edit_log_block(volume, LOG, 1)
    }),
    (&[903], "no subvolume", |volume| {
        let is_root = |key: Key, _: &[u8]| key.item_type == KeyType::ROOT_ITEM;
        edit(volume, LOG, is_root, |key, _| key.offset = 999);
    }),
    (&[904], "one tree twice", |volume| {
        let (key, bytes) = find(volume, LOG, |key, _| key.item_type == KeyType::ROOT_ITEM);
        let second = Key::new(key.objectid, key.item_type, 256);
        insert(volume, LOG, second, &bytes);
    }),
    (&[309], "unknown type", |volume| {
        let number = ino(volume, "new");
        insert(volume, LOG, Key::new(number, KeyType(100), 0), &[0]);
    }),
];

const INODES: &[Planted] = &[
    (&[906, 910], "new inode without item", |volume| {
        let number = ino(volume, "link");
        remove(volume, LOG, |key, _| key == inode_key(number));
    }),
    (&[712, 907], "another kind", |volume| {
        let number = ino(volume, "e");
        edit_key(volume, LOG, inode_key(number), |_, bytes| {
            inode(bytes).mode = 0o100_644.into();
        });
    }),
    (&[722], "target", |volume| {
        let number = ino(volume, "link");
        remove(volume, LOG, |key, _| {
            (key.objectid, key.item_type) == (number, KeyType::EXTENT_DATA)
        });
    }),
    (&[726], "flags of a link", |volume| {
        let number = ino(volume, "link");
        edit_key(volume, LOG, inode_key(number), |_, bytes| {
            inode(bytes).flags = InodeFlags::IMMUTABLE.bits().into();
        });
    }),
    (&[710], "bounds", |volume| {
        edit(volume, LOG, is_plain, |_, bytes| {
            let (head, body) = extent(bytes);
            head.ram_bytes = 4096.into();
            body.offset = 0.into();
        });
    }),
    (&[724], "generation of an extent", |volume| {
        edit(volume, LOG, is_plain, |_, bytes| {
            extent(bytes).0.generation = 0.into();
        });
    }),
    (&[711], "extent of a directory", |volume| {
        let (number, (_, bytes)) = (ino(volume, "e"), find(volume, LOG, is_plain));
        insert(
            volume,
            LOG,
            Key::new(number, KeyType::EXTENT_DATA, 0),
            &bytes,
        );
    }),
    (&[905, 807], "extent of another size", |volume| {
        let (_, committed) = find(volume, RootId::FS_TREE, is_plain);
        let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(&committed) else {
            panic!("a plain extent");
        };
        let start = body.disk_bytenr.get() + 4096;
        edit(volume, LOG, is_plain, |_, bytes| {
            extent(bytes).1.disk_bytenr = start.into();
        });
    }),
    (&[416, 807], "extent in no chunk", |volume| {
        edit(volume, LOG, is_plain, |_, bytes| {
            extent(bytes).1.disk_bytenr = (1u64 << 50).into();
        });
    }),
    (&[807], "no checksums", |volume| {
        remove(volume, LOG, |key, _| key.item_type == KeyType::EXTENT_CSUM);
    }),
    (&[], "checksums in the committed tree", |volume| {
        let is_csum = |key: Key, _: &[u8]| key.item_type == KeyType::EXTENT_CSUM;
        let (key, bytes) = remove(volume, LOG, is_csum);
        insert(volume, RootId::CSUM_TREE, key, &bytes);
    }),
    (&[805], "other data", |volume| {
        let is_csum = |key: Key, _: &[u8]| {
            (key.objectid, key.item_type) == (objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM)
        };
        edit(volume, LOG, is_csum, |_, bytes| bytes[0] ^= 1);
    }),
];

const NAMES: &[Planted] = &[
    (&[910], "entry to nothing", |volume| {
        let dir = ino(volume, "d");
        let entry = dir_index(inode_key(9999), FileKind::Regular, b"nothing");
        insert(volume, LOG, Key::new(dir, KeyType::DIR_INDEX, 5000), &entry);
    }),
    (&[718], "kind of an entry", |volume| {
        let child = ino(volume, "new");
        let leads_there = |key: Key, bytes: &[u8]| {
            key.item_type == KeyType::DIR_INDEX
                && DirEntries::new(bytes).any(|entry| entry.location().objectid == child)
        };
        edit(volume, LOG, leads_there, |_, bytes| {
            bytes[29] = FileKind::Fifo.raw()
        });
    }),
    (&[719], "index of a reference", |volume| {
        let child = ino(volume, "new");
        edit(volume, LOG, is_ref_of(child), |_, bytes| bytes[1] ^= 0x40);
    }),
    (&[], "reference to another name", |volume| {
        let child = ino(volume, "new");
        edit(volume, LOG, is_ref_of(child), |_, bytes| {
            *bytes = inode_ref(6000, b"other");
        });
    }),
    (&[723], "name twice", |volume| {
        let (dir, child) = (ino(volume, "d"), ino(volume, "link"));
        let entry = dir_index(inode_key(child), FileKind::Symlink, b"new");
        insert(volume, LOG, Key::new(dir, KeyType::DIR_INDEX, 5000), &entry);
    }),
    (&[], "entry of a name before a rename", |volume| {
        let (dir, child) = (ino(volume, "d"), ino(volume, "new"));
        let entry = dir_index(inode_key(child), FileKind::Regular, b"before");
        insert(volume, LOG, Key::new(dir, KeyType::DIR_INDEX, 5000), &entry);
    }),
    (&[911], "no parent", |volume| {
        let (child, name) = (ino(volume, "empty"), inode_ref(5, b"lost"));
        insert(
            volume,
            LOG,
            Key::new(child, KeyType::INODE_REF, 9999),
            &name,
        );
    }),
    (&[712], "parent is a file", |volume| {
        let (child, name) = (ino(volume, "empty"), inode_ref(5, b"lost"));
        let parent = ino(volume, "new");
        insert(
            volume,
            LOG,
            Key::new(child, KeyType::INODE_REF, parent),
            &name,
        );
    }),
    (&[909], "index taken", |volume| {
        let (dir, old) = (ino(volume, "d"), ino(volume, "data"));
        let index = committed_index(volume, old);
        let (child, name) = (ino(volume, "empty"), inode_ref(index, b"taker"));
        insert(volume, LOG, Key::new(child, KeyType::INODE_REF, dir), &name);
    }),
    (&[912], "range that ends too early", |volume| {
        let dir = ino(volume, "d");
        let key = Key::new(dir, KeyType::DIR_LOG_INDEX, 900);
        insert(volume, LOG, key, &899u64.to_le_bytes());
    }),
    (&[908], "range over a subvolume", |volume| {
        let dir = ino(volume, "d");
        let key = Key::new(dir, KeyType::DIR_LOG_INDEX, 0);
        insert(volume, LOG, key, &u64::MAX.to_le_bytes());
    }),
    (&[908], "entry of a subvolume", |volume| {
        let dir = ino(volume, "d");
        let child = Key::new(256, KeyType::ROOT_ITEM, u64::MAX);
        let entry = dir_index(child, FileKind::Directory, b"another");
        insert(volume, LOG, Key::new(dir, KeyType::DIR_INDEX, 5000), &entry);
    }),
    (&[720], "directory with two names", |volume| {
        let (dir, child) = (ino(volume, "d"), ino(volume, "f"));
        remove(volume, LOG, is_ref_of(child));
        let key = Key::new(child, KeyType::INODE_REF, dir);
        insert(volume, LOG, key, &inode_ref(7000, b"second"));
    }),
    (&[720, 913], "directory below itself", |volume| {
        let (child, below) = (ino(volume, "e"), ino(volume, "f"));
        remove(volume, LOG, is_ref_of(child));
        let key = Key::new(child, KeyType::INODE_REF, below);
        insert(volume, LOG, key, &inode_ref(7000, b"below"));
    }),
];

pub(crate) fn all() -> Vec<Planted> {
    [BLOCKS, INODES, NAMES].concat()
}

#[test]
fn fault_planted_into_a_log_is_named() {
    const TEST: &str = "fault_planted_into_a_log_is_named";
    if !kernel::or_skip(TEST) {
        return;
    }
    let logged = Logged::new();
    let report = check_it(logged.volume.devices());
    assert!(report.has_log && report.is_spotless(), "{report}");
    let mut failures = String::new();
    for (wanted, what, plant) in all() {
        let mut volume = logged.volume.clone();
        plant(&mut volume);
        let report = check_it(volume.devices());
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        if report.numbers() != wanted {
            failures += &format!("{what}: wanted {wanted:?}, found\n{report}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

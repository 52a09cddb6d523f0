//! `inspect-internal` of damaged, missing or unreachable objects.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{Scratch, images};

use crate::process::{empty_volume, location, succeed, ubtrfs};

/// The inspection continues and is no failure, as with btrfs-progs.
#[test]
fn dumps_of_absent_trees_and_blocks_do_not_fail() {
    let (_dir, image) = empty_volume();
    let volume = Crafted::load(std::slice::from_ref(&image));
    let root = volume.superblock().root.get().to_string();
    let dump = |words: &[&str]| {
        let mut command = ubtrfs();
        command.arg("inspect-internal").args(words).arg(&image);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (out, err) = dump(&["dump-tree", "-b", "1", "-b", &root]);
    assert!(err.contains("tree block bytenr 1 is not aligned"), "{err}");
    assert!(out.contains(&format!("leaf {root} ")), "{out}");
    let (_, err) = dump(&["dump-tree", "-t", "log"]);
    assert!(err.contains("cannot print log root tree"), "{err}");
    let (out, err) = dump(&["dump-tree", "-t", "999"]);
    assert!(out.contains("bytes used") && err.is_empty(), "{out}{err}");
    for place in [["-s", "2"], ["--bytenr", "1099511627776"]] {
        let (out, err) = dump(&["dump-super", place[0], place[1]]);
        assert_eq!(out, "");
        assert!(err.contains("ends before the superblock"), "{err}");
    }
}

#[test]
fn users_of_an_address_out_of_sight_have_no_path() {
    let (dir, image) = empty_volume();
    let file = dir.path().join("f");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let at = |path: &str| location(&image, path);
    succeed([
        "subvolume".as_ref(),
        "create".as_ref(),
        "-q".as_ref(),
        &*at("sub"),
    ]);
    succeed(["cp".as_ref(), file.as_os_str(), &*at("f")]);
    let volume = Volume::open(std::slice::from_ref(&image), &OpenOptions::new()).unwrap();
    let chunks = volume.pool().chunk_map().all();
    let data = chunks
        .iter()
        .find(|chunk| chunk.flags().contains(BlockGroupFlags::DATA));
    let bytenr = data.unwrap().logical().0.to_string();
    drop(volume);
    let resolve = ["inspect-internal", "logical-resolve", &bytenr].map(OsString::from);
    let sub = ["--subvol", "sub"].map(OsString::from);
    let words = resolve.iter().cloned();
    let said = succeed(words.clone().chain([image.clone().into_os_string()]));
    assert_eq!(said, [at("f").as_bytes(), b"\n"].concat());
    let said = succeed(words.chain(sub).chain([image.into_os_string()]));
    let wanted = "inode 257 subvol <FS_TREE> could not be accessed: not mounted\n";
    assert_eq!(String::from_utf8(said).unwrap(), wanted);
}

#[test]
fn a_dump_shows_the_rest_of_a_volume_with_a_damaged_root_tree() {
    let image = images::image("crc32c-zstd").unwrap();
    let mut volume = Crafted::load(&image.devices);
    let root = volume.superblock().root.get();
    let shown = |volume: &Crafted, words: &[&str]| {
        let dir = Scratch::new().unwrap();
        let path = dir.path().join("v.img");
        save_image(&*volume.devices()[0].1, &path).unwrap();
        let mut command = ubtrfs();
        command.args(["inspect-internal", "dump-tree"]);
        let output = command.args(words).arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let sound = shown(&volume, &[]);
    volume.edit_leaves(RootId::ROOT_TREE, |items| {
        let is_csum = |key: &Key| key.objectid == RootId::CSUM_TREE.0;
        let found = items.iter_mut().find(|(key, _)| is_csum(key));
        // The level of the root is damaged.
        found.map(|(_, bytes)| bytes[238] = 9).is_some()
    });
    let found = shown(&volume, &[]);
    assert!(found.contains("\nfs tree key (FS_TREE ROOT_ITEM 0)"));
    assert!(found.lines().count() * 10 > sound.lines().count() * 9);
    assert!(shown(&volume, &["-t", "5"]).contains("INODE_ITEM"));
    for &(device, offset) in &volume.places(root).to_vec() {
        volume.write((device, offset + 90), b"damaged");
    }
    assert!(shown(&volume, &["-t", "chunk"]).contains("CHUNK_ITEM"));
    let leaf = volume.blocks_of(RootId::EXTENT_TREE, 0)[0].to_string();
    assert!(shown(&volume, &["-b", &leaf]).contains(&format!("leaf {leaf} ")));
}

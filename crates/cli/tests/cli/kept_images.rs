//! Volumes made by the kernel, listed and copied without the kernel and without root.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;
use ubtrfs_sim::images::{self, Image};
use ubtrfs_sim::is_root;
use ubtrfs_sim::manifest::{Entry, Field, Kind, Manifest, assert_same};

use crate::process::{other_devices, succeed, ubtrfs};

fn all_images() -> Vec<(String, Image)> {
    let names = images::names().unwrap();
    assert!(!names.is_empty());
    let unpacked = names.into_iter().map(|name| {
        let image = images::image(&name).unwrap();
        (name, image)
    });
    unpacked.collect()
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "symlink",
        Kind::CharDevice => "character-device",
        Kind::BlockDevice => "block-device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

/// Returns the names of fields, and the values that the kernel showed.
fn shown(entry: &Entry) -> Vec<(&'static str, Value)> {
    let stat = &entry.stat;
    let mut fields = vec![
        ("type", kind_name(stat.kind).into()),
        ("mode", format!("{:04o}", stat.mode).into()),
        ("uid", stat.uid.into()),
        ("gid", stat.gid.into()),
        ("nlink", stat.nlink.into()),
        ("size", stat.size.into()),
        ("inode", stat.ino.into()),
    ];
    if matches!(stat.kind, Kind::CharDevice | Kind::BlockDevice) {
        fields.push(("major", stat.rdev.0.into()));
        fields.push(("minor", stat.rdev.1.into()));
    }
    fields
}

#[test]
fn json_lists_every_file_as_the_kernel_showed_it() {
    for (name, image) in all_images() {
        let mut args: Vec<OsString> = vec!["ls".into(), "-R".into(), "--json".into()];
        args.push(image.devices[0].clone().into());
        args.extend(other_devices(&image.devices));
        let listing: Value = serde_json::from_slice(&succeed(args)).unwrap();
        let mut listed: BTreeMap<Vec<u8>, &Value> = BTreeMap::new();
        for file in listing["ls"].as_array().unwrap() {
            let path = match file["path_hex"].as_str() {
                Some(hex) => unhex(hex),
                None => file["path"].as_str().unwrap().as_bytes().to_vec(),
            };
            let path = path.strip_prefix(b"/").unwrap().to_vec();
            assert!(listed.insert(path, file).is_none(), "{name}: {file}");
        }
        assert_eq!(listed.len(), image.manifest.entries.len(), "{name}");
        for entry in &image.manifest.entries {
            let path = entry.path.escape_ascii();
            let file = listed.get(&entry.path);
            let file = file.unwrap_or_else(|| panic!("{name}: {path} is not listed"));
            for (field, value) in shown(entry) {
                assert_eq!(file[field], value, "{name}: {path} {field}");
            }
        }
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}

/// Keeps only files, links and directories: other kinds need root.
fn plain(mut manifest: Manifest) -> Manifest {
    let is_plain = |kind| matches!(kind, Kind::File | Kind::Dir | Kind::Symlink);
    manifest.entries.retain(|entry| is_plain(entry.stat.kind));
    if !is_root() {
        without_unreadable(&mut manifest);
    }
    manifest
}

/// Removes files and directories that their own owner cannot read.
fn without_unreadable(manifest: &mut Manifest) {
    let is_readable = |entry: &Entry| {
        let needed = match entry.stat.kind {
            Kind::Dir => 0o500,
            _ => 0o400,
        };
        entry.stat.mode & needed == needed
    };
    let (readable, others) = std::mem::take(&mut manifest.entries)
        .into_iter()
        .partition::<Vec<Entry>, _>(is_readable);
    manifest.entries = readable;
    let is_of_other = |path: &[u8]| others.iter().any(|entry| entry.path == path);
    manifest.faults.retain(|fault| !is_of_other(&fault.path));
}

#[test]
fn contents_are_copied_as_the_kernel_showed_them() {
    let same = [Field::Kind, Field::Size, Field::Content];
    let ignored: Vec<Field> = Field::ALL
        .into_iter()
        .filter(|f| !same.contains(f))
        .collect();
    for (name, image) in all_images() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let output = ubtrfs()
            .args(["cp", "-r"])
            .args([&image.devices[0], &out])
            .args(other_devices(&image.devices))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.lines().all(|line| line.contains("mknod")),
            "{name}: {stderr}"
        );
        let copy = plain(Manifest::of_dir(&out).unwrap());
        assert_same(&name, &plain(image.manifest), &copy, &ignored);
    }
}

//! `btrfs check` and the kernel find the results of operations sound, and the kernel can continue.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{NewInode, RenameMode, SetAttr, XattrMode};
use ubtrfs_sim::kernel::{self, KernelMount, LoopDevice};
use ubtrfs_sim::{Rng, Scratch};

use crate::fixture::{World, at, names};

fn btrfs(args: &[&str], path: &Path) -> String {
    let output = Command::new("btrfs")
        .args(args)
        .arg(path)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    said
}

fn assert_clean(image: &Path) {
    let device = LoopDevice::attach(image).unwrap();
    for mode in ["--readonly", "--mode=lowmem"] {
        let said = btrfs(&["check", mode], device.path());
        for word in ["warning", "error:", "ERROR", "mismatch", "wrong", "missing"] {
            assert!(!said.contains(word), "{mode}: {said}");
        }
    }
}

/// Fills the volume with all kinds of items, in a reproducible random order.
fn fill(world: &World, seed: u64) {
    let mut rng = Rng::new(seed);
    let volume = world.volume();
    let top = world.top();
    let root = NewInode::directory(0o755);
    volume.create_subvolume(top, b"sub", &root).unwrap();
    volume
        .create_subvolume(at(volume, "sub"), b"nested", &root)
        .unwrap();
    let mut dirs = vec![top, at(volume, "sub"), at(volume, "sub/nested")];
    for turn in 0..3000u64 {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("{}{turn}", "n".repeat(rng.below(60) as usize));
        let name = name.as_bytes();
        match rng.below(10) {
            0 => dirs.push(
                volume
                    .create(dir, name, &NewInode::directory(0o700))
                    .unwrap(),
            ),
            1 => {
                let target = vec![b't'; 1 + rng.below(300) as usize];
                volume
                    .create(dir, name, &NewInode::symlink(&target))
                    .unwrap();
            }
            2 => {
                let id = volume
                    .create(dir, name, &NewInode::with_mode(0o020_600))
                    .unwrap();
                volume.unlink(dir, name).unwrap();
                assert!(volume.attr(id).is_err());
            }
            _ => {
                let id = volume.create(dir, name, &NewInode::file(0o644)).unwrap();
                change(world, &mut rng, (dir, name), id, &dirs);
            }
        }
        if turn % 700 == 699 {
            volume.sync().unwrap();
        }
    }
    volume.set_label(b"judged").unwrap();
    let sub = at(volume, "sub").root;
    volume.snapshot(sub, top, b"copy", false).unwrap();
    volume.snapshot(sub, top, b"frozen", true).unwrap();
    let own = volume
        .create(at(volume, "copy"), b"own", &NewInode::file(0o600))
        .unwrap();
    volume.link(own, at(volume, "copy"), b"own too").unwrap();
    volume
        .delete_subvolume(at(volume, "sub"), b"nested")
        .unwrap();
    let held = volume.tmpfile(top, &NewInode::file(0o600), true).unwrap();
    volume.sync().unwrap();
    std::mem::forget(held);
}

fn change(
    world: &World,
    rng: &mut Rng,
    (dir, name): (ubtrfs_fs::FileId, &[u8]),
    id: ubtrfs_fs::FileId,
    dirs: &[ubtrfs_fs::FileId],
) {
    let volume = world.volume();
    let near = dirs.iter().filter(|other| other.root == dir.root);
    let near: Vec<_> = near.copied().collect();
    let other = near[rng.below(near.len() as u64) as usize];
    match rng.below(8) {
        0 => {
            let value = vec![7; rng.below(2000) as usize];
            volume
                .set_xattr(id, b"user.x", &value, XattrMode::Any)
                .unwrap();
        }
        1 => volume.link(id, other, &[name, b" link"].concat()).unwrap(),
        2 => {
            let mode = RenameMode::Replace;
            volume.rename(dir, name, (other, b"moved"), mode).unwrap();
        }
        3 => {
            let set = SetAttr {
                mode: Some(0o4755),
                uid: Some(1000),
                ..SetAttr::default()
            };
            volume.set_attr(id, &set).unwrap();
        }
        4 => volume.set_inode_flags(id, InodeFlags::NODATACOW).unwrap(),
        5 => volume.set_inode_flags(id, InodeFlags::COMPRESS).unwrap(),
        6 => volume.unlink(dir, name).unwrap(),
        _ => {}
    }
}

#[test]
fn check_and_kernel_accept_what_operations_leave() {
    if !kernel::or_skip("check_and_kernel_accept_what_operations_leave") {
        return;
    }
    for (features, nodesize, seed) in [("", 16 << 10, 1), ("^no-holes,^extref,^bgt", 4 << 10, 2)] {
        eprintln!("seed {seed}");
        let world = World::with_features(features, nodesize);
        fill(&world, seed);
        let volume = world.volume();
        let ours: Vec<Vec<String>> = ["", "sub", "copy", "frozen"]
            .map(|path| names(volume, path))
            .into();
        let scratch = Scratch::new().unwrap();
        let image: PathBuf = scratch.path().join("image");
        fs::write(&image, world.bytes()).unwrap();
        assert_clean(&image);
        {
            let mount = KernelMount::new(std::slice::from_ref(&image), "").unwrap();
            for (path, ours) in ["", "sub", "copy", "frozen"].iter().zip(&ours) {
                let listed = fs::read_dir(mount.path().join(path)).unwrap();
                let listed: Vec<String> = listed
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                assert_eq!(&listed, ours, "{path}");
            }
            let said = btrfs(&["filesystem", "label"], mount.path());
            assert_eq!(said.trim(), "judged");
            // The kernel removes everything again.
            for path in ["copy", "frozen", "sub"] {
                btrfs(&["subvolume", "delete"], &mount.path().join(path));
            }
            for entry in fs::read_dir(mount.path()).unwrap() {
                let path = entry.unwrap().path();
                if path.symlink_metadata().unwrap().is_dir() {
                    fs::remove_dir_all(&path).unwrap()
                } else {
                    fs::remove_file(&path).unwrap()
                }
            }
            mount.sync().unwrap();
            mount.unmount().unwrap();
        }
        assert_clean(&image);
    }
}

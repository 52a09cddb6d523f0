//! Damaged volumes that need rescue options: the kernel's `mount -o ro,rescue=...` and the engine show the
//! same.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_fs::{OpenOptions, Rescue, Result, Volume};
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, Profile, or_skip};

const FILES: usize = 40;

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8; 1000 + number * 2000]
}

/// Creates a volume with the kernel, with one copy of each block.
fn made() -> KernelVolume {
    let spec = MkfsSpec::new().metadata(Profile::Single);
    let made = KernelVolume::make(&spec).unwrap();
    let mount = made.mount("").unwrap();
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    for number in 0..FILES {
        let path = mount.path().join(format!("dir/file{number}"));
        std::fs::write(path, contents(number)).unwrap();
    }
    mount.unmount().unwrap();
    made
}

fn open(made: &KernelVolume, rescue: Rescue) -> Result<Arc<Volume>> {
    Volume::open(made.devices(), &OpenOptions::new().rescue(rescue))
}

/// Reads all files with their contents. Returns the first failure.
fn read_all(made: &KernelVolume, rescue: Rescue) -> Result<()> {
    let volume = open(made, rescue)?;
    let top = volume.root_dir(volume.default_subvolume()?)?;
    let dir = volume.resolve(top, b"dir")?;
    let mut names = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        names.push(entry.name);
        ControlFlow::Continue(())
    })?;
    assert_eq!(names.len(), FILES);
    for number in 0..FILES {
        let file = volume.resolve(dir, format!("file{number}").as_bytes())?;
        let wanted = contents(number);
        let mut bytes = vec![0; wanted.len()];
        assert_eq!(volume.read(file, 0, &mut bytes)?, wanted.len());
        assert_eq!(bytes, wanted, "file{number}");
    }
    volume.statfs().map(drop)
}

fn kernel_reads_all(mount: &KernelMount) -> std::io::Result<()> {
    let dir = mount.path().join("dir");
    assert_eq!(std::fs::read_dir(&dir)?.count(), FILES);
    for number in 0..FILES {
        let bytes = std::fs::read(dir.join(format!("file{number}")))?;
        assert_eq!(bytes, contents(number), "file{number}");
    }
    Ok(())
}

/// Returns the physical address of a tree's root block.
fn root_of(made: &KernelVolume, tree: RootId) -> u64 {
    let volume = open(made, Rescue::default()).unwrap();
    let block: Logical = volume.tree(tree).unwrap().item().bytenr();
    let chunk = volume.pool().chunk_map().get(block).unwrap();
    assert_eq!(chunk.stripes().len(), 1);
    chunk.stripes()[0].physical.0 + (block.0 - chunk.logical().0)
}

/// A flipped byte, which is restored on drop.
struct Flipped<'v> {
    made: &'v KernelVolume,
    offset: u64,
}

impl<'v> Flipped<'v> {
    fn new(made: &'v KernelVolume, offset: u64) -> Flipped<'v> {
        let flipped = Flipped { made, offset };
        flipped.flip();
        flipped
    }

    fn flip(&self) {
        let mut options = File::options();
        let device = &self.made.devices()[0];
        let file = options.read(true).write(true).open(device).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0xff], self.offset).unwrap();
    }
}

impl Drop for Flipped<'_> {
    fn drop(&mut self) {
        self.flip();
    }
}

#[test]
fn files_are_read_without_trees_that_only_tell_of_space_and_sums() {
    if !or_skip("files_are_read_without_trees_that_only_tell_of_space_and_sums") {
        return;
    }
    let made = made();
    let rescue = Rescue {
        ignore_bad_roots: true,
        ..Rescue::default()
    };
    for (tree, is_needed) in [
        (RootId::CSUM_TREE, true),
        (RootId::EXTENT_TREE, true),
        (RootId::BLOCK_GROUP_TREE, false),
        (RootId::DEV_TREE, false),
        (RootId::FREE_SPACE_TREE, false),
        (RootId::UUID_TREE, false),
    ] {
        if open(&made, Rescue::default())
            .unwrap()
            .find_tree(tree)
            .unwrap()
            .is_none()
        {
            continue;
        }
        let damage = Flipped::new(&made, root_of(&made, tree) + 200);
        let plain = read_all(&made, Rescue::default());
        assert_eq!(plain.is_err(), is_needed, "tree {tree}: {plain:?}");
        read_all(&made, rescue).unwrap_or_else(|error| panic!("tree {tree}: {error}"));
        made.mount("ro").unwrap_err();
        let mount = made.mount("ro,rescue=ibadroots").unwrap();
        kernel_reads_all(&mount).unwrap();
        mount.unmount().unwrap();
        drop(damage);
        read_all(&made, Rescue::default()).unwrap();
    }
}

/// The kernel does not mount such a volume with any option.
#[test]
fn image_that_is_cut_behind_its_chunks_is_read() {
    if !or_skip("image_that_is_cut_behind_its_chunks_is_read") {
        return;
    }
    let made = made();
    let device = File::options().write(true).open(&made.devices()[0]);
    let device = device.unwrap();
    let len = device.metadata().unwrap().len();
    device.set_len(len - 4096).unwrap();
    let error = read_all(&made, Rescue::default()).unwrap_err();
    assert!(error.to_string().contains("rescue=ibadroots"), "{error}");
    let rescue = Rescue {
        ignore_bad_roots: true,
        ..Rescue::default()
    };
    read_all(&made, rescue).unwrap();
    let writing = OpenOptions::new().rescue(rescue).writable(true);
    Volume::open(made.devices(), &writing).unwrap_err();
    device.set_len(len).unwrap();
    read_all(&made, Rescue::default()).unwrap();
}

#[test]
fn blocks_whose_sums_alone_are_wrong_are_believed_when_asked_for() {
    if !or_skip("blocks_whose_sums_alone_are_wrong_are_believed_when_asked_for") {
        return;
    }
    let made = made();
    let rescue = Rescue {
        ignore_meta_csums: true,
        ..Rescue::default()
    };
    let kernel = |options: &str| {
        let mount = made.mount(options).ok()?;
        let read = kernel_reads_all(&mount);
        mount.unmount().unwrap();
        read.ok()
    };
    for tree in [RootId::FS_TREE, RootId::CSUM_TREE] {
        let root = root_of(&made, tree);
        let sum = Flipped::new(&made, root);
        let plain = read_all(&made, Rescue::default());
        assert!(plain.is_err(), "tree {tree}");
        assert!(kernel("ro").is_none(), "tree {tree}");
        read_all(&made, rescue).unwrap_or_else(|error| panic!("tree {tree}: {error}"));
        assert!(kernel("ro,rescue=imetacsums").is_some(), "tree {tree}");
        // The generation, which must match the parent's, and the number of items.
        for offset in [80, 96] {
            let damage = Flipped::new(&made, root + offset);
            let wrong = read_all(&made, rescue);
            assert!(wrong.is_err(), "tree {tree}");
            assert!(kernel("ro,rescue=imetacsums").is_none(), "tree {tree}");
            drop(damage);
        }
        drop(sum);
        read_all(&made, Rescue::default()).unwrap();
    }
}

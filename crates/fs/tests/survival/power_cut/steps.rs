//! Work in steps over several commits, or with changing forms on disk.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{Fallocate, FileId, NewInode, SetAttr, Volume};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::oracle::{Mark, Promise};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder, save_image};
use ubtrfs_sim::seed;

use super::kernel::SECTOR_BYTES as KERNEL_SECTOR_BYTES;
use super::{Survivor, each_cut, recorded};
use crate::devices::{Layout, MIB, check, open, quiet};
use crate::shown::manifest;
use crate::soak::count;

const LIVE: &[u8] = b"live";
const KEPT: &[u8] = b"kept";

/// Creates a subvolume with many leaves, half of them shared with a snapshot.
fn fill(volume: &Volume, files: u64) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let id = volume
        .create_subvolume(top, LIVE, &NewInode::directory(0o755))
        .unwrap();
    let root = volume.root_dir(id).unwrap();
    let make = |number: u64| {
        let name = format!("file-{number}").into_bytes();
        let file = volume.create(root, &name, &NewInode::file(0o644)).unwrap();
        if number.is_multiple_of(8) {
            volume.write(file, 0, &[number as u8; 5000]).unwrap();
        }
        file
    };
    let made: Vec<FileId> = (0..files).map(make).collect();
    volume.snapshot(id, top, KEPT, true).unwrap();
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    for file in &made[..made.len() / 2] {
        volume.set_attr(*file, &set).unwrap();
    }
    (files..files * 2).map(make).for_each(drop);
    volume.sync().unwrap();
}

/// Checks that the kernel continues the interrupted deletion.
fn kernel_continues(state: &CrashState) -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let file = scratch.path().join("image");
    save_image(&state.devices[0], &file)?;
    let volume = KernelVolume::of_files(vec![file], scratch);
    volume.check()?;
    let mount = volume.mount("")?;
    let done = std::process::Command::new("btrfs")
        .args(["subvolume", "sync"])
        .arg(mount.path())
        .status()?;
    assert!(done.success());
    // A commit repairs the superblock copies.
    std::fs::write(mount.path().join("after the cut"), [7; 10_000])?;
    mount.sync()?;
    mount.scrub()?;
    mount.unmount()?;
    Ok(volume.check()?)
}

/// CLEAN-2 and CLEAN-3
#[test]
fn subvolume_is_deleted_in_steps() {
    const TEST: &str = "cuts, deletion in steps";
    let seed = seed(TEST);
    let mut layout = Layout::new(1, 256 * MIB).nodesize(4096);
    if seed.is_multiple_of(2) {
        layout = layout.features("^skinny-metadata,^bgt");
    }
    let recorder = Recorder::new();
    let devices = recorded(&layout, &recorder);
    let volume = open(&devices, &quiet()).unwrap();
    fill(&volume, count(120, 2000) as u64);
    let kept = manifest(&volume).below(KEPT);
    drop(volume);
    recorder.mark(Mark::Durable { thread: 0, ops: 0 });

    // Steps of a few references.
    let options = quiet().delta_bytes(count(16 << 10, 40 << 10) as u64);
    let volume = open(&devices, &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.delete_subvolume(top, LIVE).unwrap();
    volume.free_deleted_subvolumes().unwrap();
    drop(volume);
    check(&devices).unwrap();

    let judges_by_kernel = kernel::or_skip(TEST);
    let (mut half, mut kernels) = (0, 0);
    let plan = CrashPlan::new(seed)
        .random_states(count(4, 500))
        .sector_bytes(KERNEL_SECTOR_BYTES)
        .since(Mark::Durable { thread: 0, ops: 0 });
    let cuts = each_cut(&recorder.recording(), &plan, 1, |state| {
        let survivor = Survivor::open(state, &options)?;
        let volume = survivor.engine.volume();
        let shown = survivor.shown();
        if shown.below(KEPT) != kept {
            return Err("the snapshot has changed".to_owned());
        }
        let deleted = volume.deleted_subvolumes().map_err(|e| e.to_string())?;
        let is_half = |item: &RootItem| item.drop_progress.get().objectid != 0;
        if deleted.iter().any(|info| is_half(&info.item)) {
            half += 1;
            if deleted.iter().any(|info| info.item.drop_level == 0) {
                return Err("no place where the kernel can go on".to_owned());
            }
            if judges_by_kernel && half % count(100, 40) == 2 {
                kernels += 1;
                kernel_continues(state).map_err(|error| error.to_string())?;
            }
        }
        let freed = volume.free_deleted_subvolumes();
        freed.map_err(|error| error.to_string())?;
        survivor.stays_usable()
    });
    println!("{TEST}: {cuts} states, {half} of them half deleted, {kernels} seen by the kernel");
    assert!(half > 3);
}

/// Returns the number of free-space bitmaps.
fn bitmaps(volume: &Volume) -> usize {
    let tree = volume.tree(RootId::FREE_SPACE_TREE).unwrap();
    let mut cursor = tree.view.cursor();
    let mut more = cursor.seek(&Key::new(0, KeyType(0), 0)).unwrap();
    let mut found = 0;
    while more && let Some((key, _)) = cursor.current() {
        found += usize::from(key.item_type == KeyType::FREE_SPACE_BITMAP);
        more = cursor.advance().unwrap();
    }
    found
}

#[test]
fn free_space_turns_to_bitmaps_and_back() {
    const TEST: &str = "cuts, bitmaps";
    const SECTOR: u64 = 4096;
    /// More holes than a group may have as extent items.
    const SECTORS: u64 = 300;
    let seed = seed(TEST);
    let recorder = Recorder::new();
    let devices = recorded(&Layout::new(1, 800 * MIB), &recorder);
    let volume = open(&devices, &quiet()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let make = |name: &[u8]| volume.create(top, name, &NewInode::file(0o600)).unwrap();
    let (first, file) = (make(b"first"), make(b"file"));
    // The group created by mkfs is too small to turn back.
    let reserve = Fallocate::Reserve { keep_size: true };
    volume.fallocate(first, reserve, 0, 8 * MIB).unwrap();
    volume.sync().unwrap();
    recorder.mark(Mark::Durable { thread: 0, ops: 0 });

    let mut phases = vec![Vec::new()];
    let mut content = Vec::new();
    for ops in 1..=count(3, 12) {
        recorder.mark(Mark::Started { thread: 0, ops });
        match ops % 3 {
            1 => {
                content = vec![ops as u8; (SECTORS * SECTOR) as usize];
                for (number, sector) in content.chunks(SECTOR as usize).enumerate() {
                    let offset = number as u64 * SECTOR;
                    volume.write_direct(file, offset, sector).unwrap();
                }
            }
            2 => {
                for offset in (0..SECTORS).step_by(2).map(|number| number * SECTOR) {
                    let hole = Fallocate::PunchHole;
                    volume.fallocate(file, hole, offset, SECTOR).unwrap();
                    content[offset as usize..][..SECTOR as usize].fill(0);
                }
            }
            _ => {
                content.clear();
                volume.truncate(file, 0).unwrap();
            }
        }
        volume.sync().unwrap();
        recorder.mark(Mark::Durable { thread: 0, ops });
        assert_eq!(bitmaps(&volume) > 0, ops % 3 == 2, "phase {ops}");
        phases.push(content.clone());
    }
    drop(volume);
    check(&devices).unwrap();

    let plan = CrashPlan::new(seed)
        .random_states(count(8, 500))
        .since(Mark::Durable { thread: 0, ops: 0 });
    let cuts = each_cut(&recorder.recording(), &plan, 1, |state| {
        let Promise {
            at_least, at_most, ..
        } = Promise::of(state.marks());
        let survivor = Survivor::open(state, &quiet())?;
        let volume = survivor.engine.volume();
        let mut bytes = vec![0; (SECTORS * SECTOR) as usize];
        let read = volume.read(file, 0, &mut bytes);
        bytes.truncate(read.map_err(|error| error.to_string())?);
        if !phases[at_least..=at_most.max(at_least)].contains(&bytes) {
            return Err("the file is of no moment since the last sync".to_owned());
        }
        survivor.stays_usable()
    });
    println!("{TEST}: {cuts} states");
}

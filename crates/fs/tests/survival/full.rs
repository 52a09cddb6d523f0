//! Volumes that are filled to the last block in many ways, emptied, and filled again.
//!
//! - FULL-1: on a full volume nothing fails except with ENOSPC.
//! - FULL-2: existing data can be synced and deleted, and both checkers find nothing.
//! - FULL-3: about as much fits the second time as the first.

mod fill_until_full;
mod place;

use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_fs::{OpenOptions, Result, Volume};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::{Manifest, assert_same};
use ubtrfs_sim::record::save_image;

use crate::devices::{Devices, Layout, MIB, check, invalidate_free_space_tree, named, quiet};
use crate::shown;
use place::Place;

/// A way to fill a volume.
struct Way {
    name: &'static str,
    layout: Layout,
    options: OpenOptions,
    /// Creates the prerequisites of the steps.
    begin: fn(&Place) -> Result<()>,
    /// Fills a little more, after the steps with smaller numbers.
    step: fn(&Place, u64) -> Result<()>,
    /// The operations that must work on the full volume.
    when_full: fn(&Place) -> Result<()>,
    /// The kernel checks the volume in every run, not only in a soak.
    asks_kernel: bool,
    /// The free-space tree is invalid when the full volume is reopened.
    loses_free_space_tree: bool,
}

impl Way {
    fn new(name: &'static str, layout: Layout, step: fn(&Place, u64) -> Result<()>) -> Way {
        Way {
            name,
            layout,
            options: quiet(),
            begin: |_| Ok(()),
            step,
            when_full: |_| Ok(()),
            asks_kernel: false,
            loses_free_space_tree: false,
        }
    }
}

/// Returns how often `step` succeeded before ENOSPC.
fn until_full(what: &str, mut step: impl FnMut(u64) -> Result<()>) -> u64 {
    let mut done = 0;
    loop {
        match step(done) {
            Ok(()) => done += 1,
            Err(error) if error.is_no_space() => return done,
            // FULL-1
            Err(error) => panic!("{what}, step {done}: {error}"),
        }
    }
}

/// The result of filling a volume.
#[derive(Debug)]
struct Filled {
    steps: u64,
    /// Bytes of data and metadata on the devices.
    device_bytes: u64,
}

fn fill(way: &Way, place: &Place) -> Filled {
    place.file("rest").unwrap();
    (way.begin)(place).unwrap_or_else(|error| panic!("{}: {error}", way.name));
    let steps = until_full(way.name, |number| (way.step)(place, number));
    // The last step may have been large: fill the rest in smaller and smaller parts.
    for sectors in [64, 8, 1] {
        until_full("data", |_| place.grow("rest", sectors * 4096));
    }
    until_full("attributes", |number| place.attribute(number));
    until_full("names", |number| place.name(number));
    place.volume.sync().unwrap();
    let device_bytes = place.device_bytes();
    Filled {
        steps,
        device_bytes,
    }
}

fn open(way: &Way, devices: &Devices) -> Arc<Volume> {
    Volume::from_devices(named(devices), &way.options).unwrap()
}

/// Asserts that `btrfs check` and the kernel accept the volume. The kernel shows the same contents, deletes
/// from the full volume, and scrubs it.
fn kernel_agrees(way: &Way, devices: &[Arc<MemDevice>], ours: &Manifest) {
    if !kernel::or_skip(way.name) {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let mut files = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let file = scratch.path().join(format!("{number}.img"));
        save_image(&**device, &file).unwrap();
        files.push(file);
    }
    let volume = KernelVolume::of_files(files, scratch);
    volume.check().unwrap();
    let mount = volume.mount_ro().unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    assert_same(way.name, ours, &shown, &[]);
    mount.unmount().unwrap();

    let mount = volume.mount("").unwrap();
    std::fs::remove_file(mount.path().join("rest")).unwrap();
    mount.sync().unwrap();
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    volume.check().unwrap();
}

fn prove(way: &Way) {
    let devices: Vec<Arc<MemDevice>> = way.layout.make().into_iter().map(Arc::new).collect();
    let shared: Devices = devices.iter().map(|device| device.clone() as _).collect();
    let volume = open(way, &shared);
    let place = Place::new(Arc::clone(&volume));
    let empty = place.device_bytes();

    let first = fill(way, &place);
    (way.when_full)(&place).unwrap_or_else(|error| panic!("{}, full: {error}", way.name));
    place.try_everything();
    place.volume.sync().unwrap();
    let before = shown::manifest(&volume);
    drop((place, volume));
    // FULL-2
    check(&shared).unwrap_or_else(|faults| panic!("{}, full: {faults}", way.name));
    if way.loses_free_space_tree {
        invalidate_free_space_tree(&shared);
    }

    let volume = open(way, &shared);
    let place = Place::new(Arc::clone(&volume));
    assert_same(way.name, &before, &shown::manifest(&volume), &[]);
    if way.asks_kernel || std::env::var_os("UBTRFS_SOAK").is_some() {
        kernel_agrees(way, &devices, &before);
    }

    place
        .empty()
        .unwrap_or_else(|error| panic!("{}, emptied: {error}", way.name));
    let left = place.device_bytes();
    // Additional chunks have items.
    assert!(left <= empty + MIB, "{}: {left} after {empty}", way.name);

    let second = fill(way, &place);
    println!("{}: {first:?}, then {second:?}", way.name);
    // FULL-3
    let about = |now: u64, before: u64| now >= before / 100 * 95;
    assert!(
        about(second.device_bytes, first.device_bytes) && about(second.steps, first.steps / 2),
        "{}: {second:?} after {first:?}",
        way.name
    );
    drop((place, volume));
    check(&shared).unwrap_or_else(|faults| panic!("{}, full again: {faults}", way.name));
}

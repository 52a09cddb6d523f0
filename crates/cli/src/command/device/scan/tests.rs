//! Devices that go away between the scan and their registration.

use std::cell::Cell;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use ubtrfs::Volume;
use ubtrfs_sim::Scratch;

use super::register_if_present;

const DEVICE_BYTES: u64 = 128 << 20;

fn make_volume(path: &Path) {
    let volume = Volume::create(path, DEVICE_BYTES).unwrap();
    volume.close().unwrap();
}

fn refused() -> Result<()> {
    Err(ErrorKind::InvalidInput.into())
}

#[test]
fn device_that_goes_away_after_the_scan_is_no_failure() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("device");
    make_volume(&path);
    let detach = |path: &Path| {
        fs::write(path, "").unwrap();
        refused()
    };
    assert!(!register_if_present(&path, detach).unwrap());
    fs::remove_file(&path).unwrap();
    let absent = |_: &Path| Err(Error::from(ErrorKind::NotFound));
    assert!(!register_if_present(&path, absent).unwrap());
}

#[test]
fn device_that_another_replaces_is_registered() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("device");
    make_volume(&path);
    let calls = Cell::new(0);
    let attached_again = |_: &Path| {
        calls.set(calls.get() + 1);
        if calls.get() == 1 { refused() } else { Ok(()) }
    };
    assert!(register_if_present(&path, attached_again).unwrap());
}

#[test]
fn error_of_a_device_that_is_there_is_told() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("device");
    make_volume(&path);
    let error = register_if_present(&path, |_| refused()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

//! Volumes made by the kernel are clean.

use std::path::Path;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_sim::{Scratch, images};

use crate::assert_spotless;

#[test]
fn kept_images_are_spotless() {
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let options = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let report = check(&image.devices, &options, &mut ()).unwrap();
        assert_spotless(&name, &report);
    }
}

/// The power was cut during a balance by the kernel. Only a relocation tree has the data at its old address.
#[test]
fn interrupted_balance_is_sound() {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packed = packed.join("tests/images/interrupted-balance.img.zst");
    let scratch = Scratch::new().unwrap();
    let device = scratch.path().join("balance.img");
    images::unpack(&packed, &device).unwrap();
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check(&[device], &options, &mut ()).unwrap();
    // Copy 1 of the superblock is one commit behind.
    assert_eq!(report.numbers(), [104], "{report}");
    assert_eq!([report.errors, report.warnings, report.suppressed], [0; 3]);
}

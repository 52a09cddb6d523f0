//! Volumes that the kernel made are clean.

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_sim::images;

use crate::assert_spotless;

#[test]
fn kept_images_are_spotless() {
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let options = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let report = check(&image.devices, &options, &mut |_| {}).unwrap();
        assert_spotless(&name, &report);
    }
}

//! Volumes that the kernel made are clean, and their figures are those of btrfs-progs.

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_sim::images;

#[test]
fn kept_images_are_spotless() {
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let options = CheckOptions::default();
        let report = check(&image.devices, &options, &mut |_| {}).unwrap();
        assert!(report.is_spotless(), "{name}:\n{report}");
        assert_eq!(report.suppressed, 0, "{name}");
    }
}

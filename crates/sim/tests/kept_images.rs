//! The kept images are intact, and the kernel, if available, still shows the same contents.

use ubtrfs_sim::images;
use ubtrfs_sim::kernel::{KernelMount, or_skip};
use ubtrfs_sim::manifest::{Manifest, assert_same};

#[test]
fn every_kept_image_unpacks() {
    let names = images::names().unwrap();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let image = images::image(&name).unwrap();
        assert!(!image.devices.is_empty(), "{name}");
        assert!(image.manifest.entries.len() > 1000, "{name}");
    }
}

#[test]
fn kernel_shows_kept_images_as_it_did() {
    if !or_skip("kernel_shows_kept_images_as_it_did") {
        return;
    }
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let mount = KernelMount::new(&image.devices, "ro").unwrap();
        let shown = Manifest::of_dir(mount.path()).unwrap();
        assert_same(&name, &image.manifest, &shown, &[]);
    }
}

//! Volumes that the kernel made, through a mount of ours: all that a walk sees is what the kernel shows.

use std::io::Write;
use std::path::{Path, PathBuf};

use ubtrfs_engine::{OpenOptions, Volume};
use ubtrfs_fuse::mount::{MountError, Options, mount};
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::manifest::{Field, Manifest, diff_without};
use ubtrfs_sim::{images, kernel, matrix};

/// What a FUSE mount shows otherwise: numbers are made unique across subvolumes, and the transport has
/// no birth times.
const OTHERWISE: [Field; 2] = [Field::Ino, Field::Btime];
/// Differences shown before a test gives up.
const SHOWN: usize = 20;

/// Past the capture of the test harness.
fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// What our mount of the volume shows; none, loudly, where nothing can be mounted.
fn manifest(devices: &[PathBuf], options: Options) -> Option<Manifest> {
    let volume = Volume::open(devices, &OpenOptions::new()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        read_only: Some(true),
        ..options
    };
    let mut session = match mount(volume, Path::new("kernel-made"), dir.path(), &options) {
        Ok(session) => session,
        Err(error @ (MountError::NoFuse | MountError::NoHelper | MountError::Helper(_))) => {
            skip(&format!("cannot mount here: {error}"));
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let manifest = Manifest::of_dir(dir.path()).unwrap();
    session.unmount().unwrap();
    Some(manifest)
}

fn assert_same(name: &str, kernel: &Manifest, ours: &Manifest) {
    let differences = diff_without(kernel, ours, &OTHERWISE);
    for difference in differences.iter().take(SHOWN) {
        eprintln!("{name}: {difference} (left: kernel)");
    }
    assert!(
        differences.is_empty(),
        "{name}: {} differences",
        differences.len()
    );
}

/// A file has one number under all its names, and no other file has it.
fn assert_numbers_are_unique(name: &str, kernel: &Manifest, ours: &Manifest) {
    let mut names_of = std::collections::HashMap::new();
    for entry in &ours.entries {
        *names_of.entry(entry.stat.ino).or_insert(0u64) += 1;
    }
    for entry in &kernel.entries {
        let ours = ours.get(&entry.path).unwrap();
        let path = entry.path.escape_ascii();
        // Directories have one name, and say so whatever is in them.
        assert!(
            names_of[&ours.stat.ino] <= ours.stat.nlink,
            "{name}: /{path}"
        );
    }
}

#[test]
fn kept_images_look_as_the_kernel_showed_them() {
    let Ok(names) = images::names() else {
        skip(&format!("no images in {}", images::dir().display()));
        return;
    };
    for name in names {
        let image = images::image(&name).unwrap();
        let Some(ours) = manifest(&image.devices, Options::default()) else {
            return;
        };
        assert_same(&name, &image.manifest, &ours);
        assert_numbers_are_unique(&name, &image.manifest, &ours);
    }
}

#[test]
fn filled_volumes_look_as_the_kernel_shows_them() {
    if !kernel::or_skip("filled_volumes_look_as_the_kernel_shows_them") {
        return;
    }
    let seed = ubtrfs_sim::seed("filled_volumes_look_as_the_kernel_shows_them");
    let (cases, scale) = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => (matrix::representative(), Scale::full()),
        None => (matrix::varied(1), Scale::small()),
    };
    for case in cases {
        let filled = case.build(&scale, seed).unwrap();
        let Some(ours) = manifest(filled.volume.devices(), Options::default()) else {
            return;
        };
        let name = case.to_string();
        assert_same(&name, &filled.manifest, &ours);
        assert_numbers_are_unique(&name, &filled.manifest, &ours);
    }
}

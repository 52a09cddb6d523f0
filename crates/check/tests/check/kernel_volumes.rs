//! New volumes made by the kernel are clean, with any features and contents. The figures equal the output of `btrfs
//! check`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Report, check, check_devices};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::craft::{self, Crafted};
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{
    self, Feature, KernelMount, KernelVolume, MkfsSpec, Profile, progs_verdict,
};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{Progress, Scratch, matrix};

use crate::assert_spotless;

fn checked(volume: &KernelVolume) -> Report {
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    check(volume.devices(), &options, &mut ()).unwrap()
}

#[test]
fn filled_volumes_of_all_kinds_are_sound() {
    const TEST: &str = "filled_volumes_of_all_kinds_are_sound";
    if !kernel::or_skip(TEST) {
        return;
    }
    let seed = ubtrfs_sim::seed(TEST);
    let cases = matrix::chosen();
    let progress = Progress::new(TEST, cases.len());
    for case in cases {
        let filled = case.build(&Scale::small(), seed).unwrap();
        assert_spotless(&format!("{case}, seed {seed}"), &checked(&filled.volume));
        progress.step(|| case);
    }
}

/// `mkfs.btrfs` stores symlink targets with a NUL that is not part of their size. A restored dump of such a volume
/// has no data.
#[test]
fn volumes_that_mkfs_filled_are_sound() {
    const TEST: &str = "volumes_that_mkfs_filled_are_sound";
    if !kernel::or_skip(TEST) {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let [folder, image, dump, restored] =
        ["folder", "v.img", "v.dump", "r.img"].map(|name| scratch.path().join(name));
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("target", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("long/".repeat(50), folder.join("long")).unwrap();
    fs::write(folder.join("file"), vec![7; 200_000]).unwrap();
    for empty in [&image, &restored] {
        let file = fs::File::create(empty).unwrap();
        file.set_len(200 << 20).unwrap();
    }
    run("mkfs.btrfs", &["-q", "--rootdir"], &[&folder, &image]);
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check(std::slice::from_ref(&image), &options, &mut ()).unwrap();
    assert_spotless("filled by mkfs", &report);
    assert!(report.data_was_read && !report.is_dump);

    run("btrfs-image", &[], &[&image, &dump]);
    run("btrfs-image", &["-r"], &[&dump, &restored]);
    let report = check(&[restored], &options, &mut ()).unwrap();
    // A restored dump has no superblock copies.
    assert_eq!(report.numbers(), [101], "{report}");
    assert_eq!([report.errors, report.warnings], [0; 2], "{report}");
    assert!(report.is_dump && !report.data_was_read);
}

/// Returns the figures that `btrfs check` prints after each of the names.
fn figures_of_progs(device: &Path) -> Vec<u64> {
    let output = Command::new("btrfs").arg("check").arg(device).output();
    let output = output.expect("btrfs starts");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        let word = words.split_whitespace().next().unwrap();
        word.parse().unwrap()
    };
    [
        "found ",
        "total csum bytes:",
        "total tree bytes:",
        "total fs tree bytes:",
        "total extent tree bytes:",
        "btree space waste bytes:",
        "file data blocks allocated:",
        " referenced",
    ]
    .map(number)
    .into()
}

#[test]
fn figures_are_those_of_btrfs_progs() {
    const TEST: &str = "figures_are_those_of_btrfs_progs";
    if !kernel::or_skip(TEST) {
        return;
    }
    let image = ubtrfs_sim::images::image("crc32c-zstd").unwrap();
    let device = &image.devices[0];
    let report = check(&image.devices, &CheckOptions::default(), &mut ()).unwrap();
    let figures = report.figures;
    let ours = [
        figures.bytes_used,
        figures.csum_bytes,
        figures.tree_bytes,
        figures.fs_tree_bytes,
        figures.extent_tree_bytes,
        figures.waste_bytes,
        figures.data_bytes_allocated,
        figures.data_bytes_referenced,
    ];
    assert_eq!(ours.to_vec(), figures_of_progs(device));
}

/// Deletes a subvolume with many leaves and copies the device during the kernel's deletion.
#[test]
fn half_deleted_subvolumes_are_sound() {
    const TEST: &str = "half_deleted_subvolumes_are_sound";
    if !kernel::or_skip(TEST) {
        return;
    }
    let spec = MkfsSpec::new()
        .nodesize(4096)
        .without(Feature::BlockGroupTree);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("commit=1").unwrap();
    let subvolume = mount.path().join("doomed");
    run("btrfs", &["subvolume", "create"], &[&subvolume]);
    let files = 60_000;
    for number in 0..files {
        fs::write(subvolume.join(format!("file-{number:060}")), "content").unwrap();
    }
    let snapshot = mount.path().join("snapshot");
    run(
        "btrfs",
        &["subvolume", "snapshot"],
        &[&subvolume, &snapshot],
    );
    for number in (0..files).step_by(7) {
        fs::write(subvolume.join(format!("file-{number:060}")), "changed").unwrap();
    }
    mount.sync().unwrap();
    run("btrfs", &["subvolume", "delete"], &[&subvolume]);
    // Freezing commits at any point of the cleaner's work, and the device then has a consistent state. The cleaner
    // stops midway only for a commit that another caller waits for.
    let copy = volume.dir().join("copy.img");
    let mut half = 0;
    for round in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| run("btrfs", &["filesystem", "sync"], &[mount.path()]));
            let frozen = Freeze::new(mount.path());
            run("cp", &["--sparse=always"], &[&volume.devices()[0], &copy]);
            drop(frozen);
        });
        let report = check(
            std::slice::from_ref(&copy),
            &CheckOptions::default(),
            &mut (),
        );
        assert_spotless(&format!("round {round}"), &report.unwrap());
        let roots = run(
            "btrfs",
            &["inspect-internal", "dump-tree", "-t", "root"],
            &[&copy],
        );
        let is_half =
            |line: &str| line.contains("drop_progress") && !line.contains("drop_progress key (0 ");
        half += usize::from(roots.lines().any(is_half));
        if !roots.contains("refs 0") {
            break;
        }
    }
    println!("met half-way {half} times");
}

#[test]
fn volumes_grown_from_seeds_are_sound() {
    const TEST: &str = "volumes_grown_from_seeds_are_sound";
    if !kernel::or_skip(TEST) {
        return;
    }
    let mut volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    for number in 0..200 {
        fs::write(mount.path().join(format!("seed-{number}")), [1; 5000]).unwrap();
    }
    mount.unmount().unwrap();
    let mount = volume.sprout(512 << 20).unwrap();
    for number in 0..200 {
        fs::write(mount.path().join(format!("sprout-{number}")), [2; 5000]).unwrap();
    }
    mount.unmount().unwrap();
    assert_spotless(TEST, &checked(&volume));
}

/// Free space in so many fragments that the free-space tree switches to bitmaps.
#[test]
fn bitmaps_of_free_space_are_sound() {
    const TEST: &str = "bitmaps_of_free_space_are_sound";
    if !kernel::or_skip(TEST) {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let name = |number| mount.path().join(format!("file-{number}"));
    let files = 6_000;
    for number in 0..files {
        fs::write(name(number), [number as u8; 4096]).unwrap();
    }
    mount.sync().unwrap();
    for number in (0..files).step_by(2) {
        fs::remove_file(name(number)).unwrap();
    }
    mount.unmount().unwrap();
    let device = &volume.devices()[0];
    let args = ["inspect-internal", "dump-tree", "-t", "free-space"];
    assert!(run("btrfs", &args, &[device]).contains("FREE_SPACE_BITMAP"));
    assert_spotless(TEST, &checked(&volume));
}

/// The log on the device after an fsync and a power cut.
#[test]
fn log_trees_are_read_and_take_free_space() {
    const TEST: &str = "log_trees_are_read_and_take_free_space";
    if !kernel::or_skip(TEST) {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("commit=300").unwrap();
    fs::write(mount.path().join("old"), "content").unwrap();
    mount.sync().unwrap();
    for number in 0..100u8 {
        let mut file = fs::File::create(mount.path().join(format!("file-{number}"))).unwrap();
        file.write_all(&[number; 10_000]).unwrap();
        file.sync_all().unwrap();
    }
    let copy = volume.dir().join("copy.img");
    run("cp", &["--sparse=always"], &[&volume.devices()[0], &copy]);
    drop(mount);
    let report = check(
        std::slice::from_ref(&copy),
        &CheckOptions::default(),
        &mut (),
    );
    let report = report.unwrap();
    assert!(report.has_log);
    assert_spotless(TEST, &report);

    let mut crafted = Crafted::load(std::slice::from_ref(&copy));
    let sound = crafted.clone();
    let changed = crafted.edit_leaves(RootId::TREE_LOG, |items| {
        let sums = items
            .iter_mut()
            .find(|(key, bytes)| key.item_type == KeyType::EXTENT_CSUM && bytes.len() > 4);
        sums.is_some_and(|(_, bytes)| {
            bytes.truncate(4);
            true
        })
    });
    assert!(changed > 0);
    let unsummed = volume.dir().join("unsummed.img");
    save_image(&*crafted.devices()[0].1, &unsummed).unwrap();
    let report = check(
        std::slice::from_ref(&unsummed),
        &CheckOptions::default(),
        &mut (),
    );
    let report = report.unwrap();
    assert_eq!(report.numbers(), [807], "{report}");
    assert!(!report.is_clean());
    progs_verdict(&[unsummed], false).unwrap_err();

    let mut crafted = sound;
    let log_root = crafted.superblock().log_root.get();
    let key = Key::new(log_root, KeyType::METADATA_ITEM, 0);
    let mut extent = [1u64, 5, 2].map(u64::to_le_bytes).concat();
    extent.push(KeyType::TREE_BLOCK_REF.0);
    extent.extend(5u64.to_le_bytes());
    let changed = crafted.edit_leaves(RootId::EXTENT_TREE, |items| {
        items.push((key, extent.clone()));
        true
    });
    assert_eq!(changed, 1);
    let devices = crafted
        .devices()
        .into_iter()
        .map(|(path, device)| (path, device as Arc<dyn BlockDevice>))
        .collect();
    let report = check_devices(devices, &CheckOptions::default(), &mut ()).unwrap();
    assert_eq!(report.numbers(), [112, 308, 402, 501, 503], "{report}");
}

/// A file is written and shared, and only the other one is synced. The log replay restores that file's data with its
/// checksums, and the first file's extent stays preallocated.
#[test]
fn extent_may_be_preallocated_in_one_file_and_written_in_another() {
    const TEST: &str = "extent_may_be_preallocated_in_one_file_and_written_in_another";
    if !kernel::or_skip(TEST) {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("commit=300").unwrap();
    let (first, second) = (mount.path().join("first"), mount.path().join("second"));
    run("fallocate", &["-l", "1M"], &[&first]);
    mount.sync().unwrap();
    let file = fs::File::options().write(true).open(&first).unwrap();
    (&file).write_all(&[7; 65536]).unwrap();
    run("cp", &["--reflink=always"], &[&first, &second]);
    fs::File::open(&second).unwrap().sync_all().unwrap();
    let copy = volume.dir().join("copy.img");
    run("cp", &["--sparse=always"], &[&volume.devices()[0], &copy]);
    drop(file);
    drop(mount);

    let copies = [copy];
    let options = CheckOptions::default();
    let waiting = check(&copies, &options, &mut ()).unwrap();
    assert!(waiting.has_log);
    assert_spotless("with the log", &waiting);
    let mount = KernelMount::new(&copies, "").unwrap();
    assert_eq!(
        fs::read(mount.path().join("first")).unwrap()[..65536],
        [0; 65536]
    );
    assert_eq!(
        fs::read(mount.path().join("second")).unwrap()[..65536],
        [7; 65536]
    );
    mount.unmount().unwrap();
    let replayed = check(&copies, &options, &mut ()).unwrap();
    assert_spotless("replayed", &replayed);
    progs_verdict(&copies, true).unwrap();
}

/// Returns the device extents on both sides of each leaf boundary: device, offset and length.
fn at_borders(dump: &str) -> Vec<[(u64, u64, u64); 2]> {
    let mut borders = Vec::new();
    let mut last = None;
    let mut key = None;
    let mut begins_leaf = false;
    for line in dump.lines() {
        let number = |word: &str| word.trim_end_matches(')').parse::<u64>().unwrap();
        begins_leaf |= line.starts_with("leaf ");
        if let Some((device, offset)) = line.split_once(" DEV_EXTENT ") {
            let (_, device) = device.split_once("key (").unwrap();
            key = Some((number(device), number(offset.split(' ').next().unwrap())));
        }
        let length = line
            .split_once(" length ")
            .map(|(_, length)| number(length));
        if let (Some((device, offset)), Some(length)) = (key, length) {
            let extent = (device, offset, length);
            if let (true, Some(last)) = (begins_leaf, last.replace(extent)) {
                borders.push([last, extent]);
            }
            (key, begins_leaf) = (None, false);
        }
    }
    borders
}

/// Within one leaf, the block checker would detect the overlap first.
#[test]
fn device_extents_of_two_leaves_that_overlap_are_named() {
    const TEST: &str = "device_extents_of_two_leaves_that_overlap_are_named";
    const STEP: u64 = 64 << 10;
    if !kernel::or_skip(TEST) {
        return;
    }
    let spec = MkfsSpec::new().nodesize(4096).devices(16);
    let spec = spec.data(Profile::Raid0).metadata(Profile::Raid1);
    let volume = KernelVolume::make(&spec.device_bytes(128 << 20)).unwrap();
    let mount = volume.mount("").unwrap();
    // A chunk has an extent on each device.
    let fits = |number: &u32| {
        let mut command = Command::new("fallocate");
        command.args(["-l", "16M"]);
        command.arg(mount.path().join(format!("file-{number}")));
        command.output().unwrap().status.success()
    };
    assert!((0..).take_while(fits).count() > 10);
    mount.sync().unwrap();
    let args = ["inspect-internal", "dump-tree", "-t", "dev"];
    let dump = run("btrfs", &args, &[mount.loops()[0].path()]);
    mount.unmount().unwrap();
    assert_spotless(TEST, &checked(&volume));

    let borders = at_borders(&dump);
    let meets = |[(device, offset, length), after]: &&[(u64, u64, u64); 2]| {
        (*device, offset + length) == (after.0, after.1)
    };
    let found = borders.iter().find(meets);
    let [(device, offset, _), _] = found.unwrap_or_else(|| panic!("{borders:?}"));
    let key = |offset| craft::key(*device, KeyType::DEV_EXTENT.0, offset);
    let (old, new) = (key(*offset), key(offset + STEP));
    let copies = volume.devices().iter();
    let changed = copies.map(|file| craft::replace_in_keys(file, &old, &new).unwrap());
    assert!(changed.sum::<usize>() >= 2);
    let report = check(volume.devices(), &CheckOptions::default(), &mut ()).unwrap();
    assert_eq!(report.numbers(), [206, 207, 209], "{report}");
}

fn run(program: &str, args: &[&str], paths: &[&Path]) -> String {
    let output = Command::new(program).args(args).args(paths).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A frozen mount, which is thawed on drop.
struct Freeze<'p>(&'p Path);

impl Freeze<'_> {
    fn new(path: &Path) -> Freeze<'_> {
        run("fsfreeze", &["-f"], &[path]);
        Freeze(path)
    }
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

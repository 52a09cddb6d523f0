//! Commands about a pending fsync log that the kernel wrote, compared with those of btrfs-progs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::kernel::{
    CutVolume, KernelMount, LoopDevice, MkfsSpec, Profile, or_skip, progs_verdict,
};

use crate::process::{both_outputs, fail, succeed, ubtrfs};

/// A volume of the kernel that was cut off after an fsync, and its devices.
struct Logged {
    volume: CutVolume,
    devices: Vec<PathBuf>,
}

impl Logged {
    fn new(spec: &MkfsSpec, script: &str) -> Logged {
        let mut volume = CutVolume::make(spec, "commit=600").unwrap();
        let warm = "head -c 3M /dev/urandom > warm; sync -f .; rm warm; touch old; sync -f .";
        let run = Command::new("bash")
            .args(["-ec", &format!("{warm}; {script}")])
            .current_dir(volume.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{script}: {said}");
        let devices = volume.cut().unwrap();
        volume.end().unwrap();
        assert!(superblocks(&devices[0])[0].has_log(), "{script}");
        Logged { volume, devices }
    }

    /// Copies the devices, each time under the same names.
    fn copy(&self) -> Vec<PathBuf> {
        self.volume.copy(&self.devices).unwrap()
    }
}

fn one_device() -> MkfsSpec {
    MkfsSpec::new().device_bytes(1 << 30)
}

const NEW_FILE: &str = "echo new > new; sync new";

fn superblocks(device: &Path) -> Vec<Superblock> {
    let file = File::open(device).unwrap();
    let len = file.metadata().unwrap().len();
    let within = SUPERBLOCK_OFFSETS
        .iter()
        .filter(|offset| *offset + SUPERBLOCK_SIZE as u64 <= len);
    let read = |offset: &u64| {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut block, *offset).unwrap();
        Superblock::from_block(&block).unwrap().clone()
    };
    within.map(read).collect()
}

fn dump_super(device: &Path) -> String {
    let mut btrfs = Command::new("btrfs");
    btrfs.args(["inspect-internal", "dump-super", "-fa"]);
    both_outputs(btrfs.arg(device))
}

fn zero_log(device: &Path) -> String {
    let args = ["rescue".as_ref(), "zero-log".as_ref(), device.as_os_str()];
    String::from_utf8(succeed(args)).unwrap()
}

/// Returns the names that the kernel shows in the top directory.
fn names(devices: &[PathBuf]) -> Vec<String> {
    let mount = KernelMount::new(devices, "").unwrap();
    let entries = fs::read_dir(mount.path()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    mount.unmount().unwrap();
    names
}

#[test]
fn log_is_cleared_as_by_btrfs_progs() {
    if !or_skip("log_is_cleared_as_by_btrfs_progs") {
        return;
    }
    let logged = Logged::new(&one_device(), NEW_FILE);
    let theirs = logged.copy();
    assert_eq!(names(&theirs), ["new", "old"]);
    let theirs = logged.copy();
    let mut btrfs = Command::new("btrfs");
    let said = both_outputs(btrfs.args(["rescue", "zero-log"]).arg(&theirs[0]));
    let dumped = dump_super(&theirs[0]);
    assert!(dumped.contains("log_root\t\t0\n"), "{dumped}");

    let ours = logged.copy();
    assert_eq!(zero_log(&ours[0]), said);
    assert_eq!(dump_super(&ours[0]), dumped);
    progs_verdict(&ours, true).unwrap();
    assert_eq!(names(&ours), ["old"]);
    // Clearing a missing log is no error.
    let again = zero_log(&ours[0]);
    assert!(
        again.contains(", previous log_root 0, level 0\n"),
        "{again}"
    );
    let quiet = ["-q", "rescue", "zero-log"].map(AsRef::as_ref);
    assert!(succeed([&quiet[..], &[ours[0].as_os_str()]].concat()).is_empty());
}

#[test]
fn damaged_log_is_cleared_and_the_volume_mounts() {
    if !or_skip("damaged_log_is_cleared_and_the_volume_mounts") {
        return;
    }
    let logged = Logged::new(&one_device(), NEW_FILE);
    let image = logged.copy();
    let mut crafted = ubtrfs_sim::craft::Crafted::load(&image);
    let log_root = crafted.superblock().log_root.get();
    let places = crafted.places(log_root).to_vec();
    for place in places {
        crafted.write(place, &[0; 64]);
    }
    let damaged = logged.volume.dir().join("damaged.img");
    ubtrfs_sim::record::save_image(&*crafted.devices()[0].1, &damaged).unwrap();
    let damaged = [damaged];
    KernelMount::new(&damaged, "").unwrap_err();
    zero_log(&damaged[0]);
    progs_verdict(&damaged, true).unwrap();
    assert_eq!(names(&damaged), ["old"]);
}

#[test]
fn log_on_a_device_in_use_is_not_cleared() {
    if !or_skip("log_on_a_device_in_use_is_not_cleared") {
        return;
    }
    let logged = Logged::new(&one_device(), NEW_FILE);
    let image = logged.copy().remove(0);
    let refused = |device: &Path| {
        let before = dump_super(&image);
        let args = ["rescue".as_ref(), "zero-log".as_ref(), device.as_os_str()];
        let said = fail(args, "cannot clear the log on");
        assert_eq!(dump_super(&image), before);
        String::from_utf8(said.stderr).unwrap()
    };
    let attached = LoopDevice::attach(&image).unwrap();
    let said = refused(&image);
    assert!(said.contains("in use"), "{said}");
    drop(attached);
    let mount = KernelMount::new(std::slice::from_ref(&image), "").unwrap();
    for device in [&*image, mount.loops()[0].path()] {
        let said = refused(device);
        assert!(said.contains("is mounted on"), "{said}");
    }
    mount.unmount().unwrap();
    zero_log(&image);
}

#[test]
fn log_is_cleared_on_all_devices_of_a_volume() {
    if !or_skip("log_is_cleared_on_all_devices_of_a_volume") {
        return;
    }
    let spec = one_device()
        .devices(2)
        .data(Profile::Raid1)
        .metadata(Profile::Raid1);
    let logged = Logged::new(&spec, NEW_FILE);
    let both = logged.copy();
    let has_log = |device: &PathBuf| superblocks(device).iter().any(Superblock::has_log);
    assert!(both.iter().all(has_log));
    let clear = |args: &[&Path]| {
        let mut command = ubtrfs();
        let output = command.args(["rescue", "zero-log"]).args(args).output();
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    let said = clear(&[&both[1], "--device".as_ref(), &both[0]]);
    assert_eq!(said, "");
    assert!(!both.iter().any(has_log));
    assert_eq!(names(&both), ["old"]);

    // A missing device keeps its log.
    let both = logged.copy();
    let nowhere = ubtrfs_sim::Scratch::new().unwrap();
    let said = clear(&[&both[0], "--scan".as_ref(), nowhere.path()]);
    assert!(
        said.contains("device 2 is missing: its copy of the log remains"),
        "{said}"
    );
    assert!(!has_log(&both[0]) && has_log(&both[1]));
}

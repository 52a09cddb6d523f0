//! The memory for checking a volume does not grow with the volume. Each check runs in a separate process,
//! whose memory is measured: the test executes itself again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_device::{Access, BlockDevice, FileDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::Timespec;
use ubtrfs_fs::{NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};

const DEVICE_BYTES: u64 = 1 << 30;
const FEW: usize = 10_000;
const MANY: usize = 60_000;
/// Contents are inline, so everything is in tree blocks.
const FILE_BYTES: usize = 1_500;
const BUDGET_BYTES: u64 = 4 << 20;
/// Far less than the growth of the trees. The memory of a process varies by some MiB between runs.
const MOST_GROWTH_BYTES: u64 = 2 * BUDGET_BYTES;
/// Passes the image to the process that checks it.
const IMAGE: &str = "UBTRFS_TEST_IMAGE";
const PEAK: &str = "peak bytes: ";

fn make(image: &Path, files: usize) {
    File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    let created = Timespec {
        sec: 1.into(),
        nsec: 0.into(),
    };
    let identity = Identity::random(1, created);
    let plan = Plan::new(&MkfsOptions::default(), &identity, &[DEVICE_BYTES]).unwrap();
    plan.write(&[&*device], false).unwrap();
    let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> = vec![(image.to_owned(), device)];
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(devices, &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for number in 0..files {
        let name = format!("file{number}");
        let new = NewInode::file(0o644);
        let file = volume.create(top, name.as_bytes(), &new).unwrap();
        volume.write(file, 0, &[number as u8; FILE_BYTES]).unwrap();
    }
    volume.close().unwrap();
}

/// Returns the peak memory of this process.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

/// The program that the other test runs. Without an image it is not a test.
#[test]
#[ignore = "run by the other test, in a process of its own"]
fn check_of_a_named_image() {
    let image = std::env::var_os(IMAGE).expect("the other test names an image");
    let options = CheckOptions {
        memory_bytes: BUDGET_BYTES,
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check(&[PathBuf::from(image)], &options, &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
    println!("{PEAK}{}", peak_bytes());
}

fn peak_of_check(image: &Path) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "check_of_a_named_image"])
        .arg("--nocapture")
        .env(IMAGE, image)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let peak = said
        .split_once(PEAK)
        .and_then(|(_, rest)| rest.split_whitespace().next());
    let peak = peak.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    peak.parse().unwrap()
}

#[test]
fn larger_volumes_take_no_more_memory() {
    let dir = tempfile::tempdir().unwrap();
    let peak = |files| {
        let image = dir.path().join(format!("{files}.img"));
        make(&image, files);
        let volume = Volume::open(std::slice::from_ref(&image), &OpenOptions::new()).unwrap();
        let tree_bytes = volume
            .tree(RootId::FS_TREE)
            .unwrap()
            .item()
            .bytes_used
            .get();
        (tree_bytes, peak_of_check(&image))
    };
    let (few_bytes, few) = peak(FEW);
    let (many_bytes, many) = peak(MANY);
    println!("{few_bytes} bytes take {few}, {many_bytes} bytes {many}");
    assert!(few_bytes > 2 * BUDGET_BYTES && many_bytes > few_bytes + 10 * MOST_GROWTH_BYTES);
    let grown = many.saturating_sub(few);
    assert!(grown < MOST_GROWTH_BYTES, "{few}, then {many}");
}

//! Devices that are added, removed, resized and replaced, on images and mounts, as the kernel reads them afterwards.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelMount, or_skip, progs_verdict};

use crate::mounted::Mounted;
use crate::process::{both_outputs, empty_volume, fail, location, succeed};

const TEST: &str = "changes of devices";

/// Splits a command line. `A` to `D` are replaced by these paths.
fn words(line: &str, paths: &[&Path]) -> Vec<OsString> {
    let word = |word: &str| match word {
        "A" => paths[0].into(),
        "B" => paths[1].into(),
        "C" => paths[2].into(),
        "D" => paths[3].into(),
        word => OsString::from(word),
    };
    line.split(' ').map(word).collect()
}

fn run(line: &str, paths: &[&Path]) -> String {
    String::from_utf8(succeed(words(line, paths))).unwrap()
}

fn contents() -> Vec<u8> {
    (0..20_000_000u32).map(|at| (at / 3) as u8).collect()
}

fn images(folder: &Path) -> [PathBuf; 2] {
    ["second.img", "third.img"].map(|name| {
        let path = folder.join(name);
        fs::File::create(&path).unwrap().set_len(600 << 20).unwrap();
        path
    })
}

/// Asserts that the checkers find no error, and that the kernel mounts the devices and reads the file.
fn judge(devices: &[&PathBuf]) {
    succeed(["check".as_ref(), "-q".as_ref(), devices[0].as_os_str()]);
    if !or_skip(TEST) {
        return;
    }
    let devices: Vec<PathBuf> = devices.iter().map(|&device| device.clone()).collect();
    progs_verdict(&devices, true).unwrap();
    let mount = KernelMount::new(&devices, "").unwrap();
    assert!(fs::read(mount.path().join("file")).unwrap() == contents());
    let shown = both_outputs(
        Command::new("btrfs")
            .args(["filesystem", "show"])
            .arg(mount.path()),
    );
    let count = format!("Total devices {} ", devices.len());
    assert!(shown.contains(&count), "{shown}");
    mount.unmount().unwrap();
}

fn fill(image: &Path, scratch: &Scratch) {
    let file = scratch.path().join("contents");
    fs::write(&file, contents()).unwrap();
    succeed(["cp".into(), file.into_os_string(), location(image, "file")]);
}

#[test]
fn devices_of_an_image_change_as_the_kernel_reads_them() {
    let (scratch, first) = empty_volume();
    fill(&first, &scratch);
    let [second, third] = images(scratch.path());
    let paths = [&*first, &*second, &*third];
    assert_eq!(run("device add B A", &paths), "");
    judge(&[&first, &second]);
    let shown = run("filesystem resize 2:+100M A", &paths);
    assert!(shown.starts_with("Resize device id 2 ("), "{shown}");
    assert!(
        shown.ends_with(") from 600.00MiB to 700.00MiB\n"),
        "{shown}"
    );
    assert_eq!(second.metadata().unwrap().len(), 700 << 20);
    run("filesystem resize 2:500M A", &paths);
    assert_eq!(second.metadata().unwrap().len(), 500 << 20);
    judge(&[&first, &second]);

    assert_eq!(run("replace status -1 A", &paths), "Never started\n");
    assert_eq!(run("replace start -B 1 C A", &paths), "");
    let status = run("replace status C", &paths);
    assert!(status.starts_with("Started on "), "{status}");
    assert!(
        status.ends_with(", 0 write errs, 0 uncorr. read errs\n"),
        "{status}"
    );
    fail(words("ls A", &paths), "is not a btrfs device");
    judge(&[&third, &second]);
    let shown = run("filesystem resize max C", &paths);
    assert!(shown.ends_with(" from 512.00MiB to max\n"), "{shown}");
    assert_eq!(run("device delete B C", &paths), "");
    fail(words("ls B", &paths), "is not a btrfs device");
    judge(&[&third]);
    let json = run("--format json filesystem resize 580m C", &paths);
    assert!(json.contains("\"new_bytes\": 608174080"), "{json}");
    judge(&[&third]);
}

#[test]
fn refused_changes_of_devices_have_the_words_of_btrfs_progs() {
    let (scratch, first) = empty_volume();
    fill(&first, &scratch);
    let [second, third] = images(scratch.path());
    let small = scratch.path().join("small.img");
    fs::File::create(&small).unwrap().set_len(20 << 20).unwrap();
    let paths = [&*first, &*second, &*third, &*small];
    run("mkfs -q C", &paths);
    let refused = |line: &str, message: &str| {
        fail(words(line, &paths), message);
    };
    refused(
        "device add C A",
        "appears to contain an existing filesystem (btrfs)",
    );
    refused("device add C A", "use the -f option to force overwrite of ");
    refused(
        "device add nowhere A",
        "cannot open nowhere: No such file or directory",
    );
    refused(
        "device remove 1 A",
        "error removing devid 1: unable to remove the only writeable device",
    );
    refused(
        "device remove missing A",
        "error removing device 'missing': no missing devices found to remove",
    );
    refused("device remove B A", "it is no device of the volume");
    refused("filesystem resize 7:max A", "cannot find devid: 7");
    refused("filesystem resize 1:xyz A", "failed to parse size xyz");
    refused(
        "filesystem resize 1:-700M A",
        "current size is 512.00MiB which is smaller than 700.00MiB",
    );
    refused(
        "filesystem resize 20M A",
        "no space elsewhere for block groups of device 1: ",
    );
    refused(
        "replace start 7 B A",
        "'7' is not a valid devid for filesystem '",
    );
    refused(
        "replace start 1 C A",
        "appears to contain an existing filesystem (btrfs)",
    );
    refused(
        "replace start 1 D A",
        "target device smaller than source device (required 536870912 bytes)",
    );
    judge(&[&first]);
    run("device add -f C A", &paths);
    judge(&[&first, &third]);
    // Its block groups move to the other device.
    run("device remove 1 A", &paths);
    judge(&[&third]);
}

#[test]
fn devices_of_a_mount_change_while_it_is_used() {
    let Some(mounted) = Mounted::new("", |_| {}) else {
        return;
    };
    let folder = mounted.image.parent().unwrap().to_owned();
    let [second, third] = images(&folder);
    let dir = &mounted.dir;
    fs::write(dir.join("file"), contents()).unwrap();
    let paths = [&**dir, &*second, &*third];
    run("device add B A", &paths);
    run("filesystem resize 2:650M A", &paths);
    let written = dir.join("during");
    let writer = std::thread::spawn(move || {
        for number in 0..20u8 {
            fs::write(&written, vec![number; 1 << 20]).unwrap();
            fs::File::open(&written).unwrap().sync_all().unwrap();
        }
    });
    run("replace start 1 C A", &paths);
    writer.join().unwrap();
    let usage = run("device usage A", &paths);
    assert!(
        usage.contains("third.img, ID: 1") && usage.contains("second.img, ID: 2"),
        "{usage}"
    );
    assert_eq!(fs::read(dir.join("during")).unwrap(), vec![19; 1 << 20]);
    mounted.unmount();
    judge(&[&third, &second]);
}

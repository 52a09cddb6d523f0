//! `ubtrfs check` on intact and damaged volumes that the kernel made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use ubtrfs_sim::{craft, images};

use crate::process::{fail, ubtrfs};

const SECOND_COPY: u64 = 64 << 20;

/// Runs a check, and returns standard output, standard error and the exit code.
fn check(args: &[&str], paths: &[impl AsRef<Path>]) -> (String, String, i32) {
    let output = ubtrfs()
        .arg("check")
        .args(args)
        .args(paths.iter().map(AsRef::as_ref))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (text(output.stdout), text(output.stderr), code)
}

#[test]
fn sound_volumes_have_no_error() {
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let (out, err, code) = check(&["--check-data-csum"], &image.devices);
        assert_eq!(code, 0, "{name}: {out}{err}");
        assert!(out.contains(" bytes used, no error found\n"), "{out}");
        assert!(!out.contains("not read"), "{out}");
        assert!(err.starts_with("[1/8] checking superblocks\n"), "{err}");
        assert!(
            err.ends_with("[8/8] checking references to extents\n"),
            "{err}"
        );
    }
}

#[test]
fn check_that_does_not_read_data_says_so() {
    let image = images::image("crc32c-zstd").unwrap();
    let (out, _, code) = check(&[], &image.devices);
    assert_eq!(code, 0);
    let line = "\ndata was not read: use --check-data-csum for it\nfound ";
    assert!(out.contains(line), "{out}");
    let (out, _, _) = check(&["--format", "json"], &image.devices);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["check"]["data_read"], false);
}

#[test]
fn missing_device_is_no_error_with_degraded() {
    let image = images::image("raid1").unwrap();
    std::fs::remove_file(&image.devices[1]).unwrap();
    let (out, _, code) = check(&[], &image.devices[..1]);
    assert_eq!(code, 1);
    assert!(out.contains("error E0106 device-missing: "), "{out}");
    let (out, _, code) = check(&["--degraded"], &image.devices[..1]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("warning E0106 device-missing: "), "{out}");
}

#[test]
fn quiet_says_nothing_of_a_sound_volume() {
    let image = images::image("crc32c-zstd").unwrap();
    let (out, err, code) = check(&["-q", "--mode", "lowmem", "--readonly"], &image.devices);
    assert_eq!((out.as_str(), err.as_str(), code), ("", "", 0));
}

#[test]
fn fault_is_named_and_makes_the_command_fail() {
    let image = images::image("crc32c-zstd").unwrap();
    craft::edit_superblock(&image.devices[0], |superblock| {
        let used = superblock.bytes_used.get();
        superblock.bytes_used = (used + 4096).into();
    })
    .unwrap();
    let (out, _, code) = check(&[], &image.devices);
    assert_eq!(code, 1);
    assert!(out.contains("error E0112 bytes-used: "), "{out}");
    assert!(out.contains(" bytes used, 1 error(s) found\n"), "{out}");

    let (out, err, code) = check(&["--format", "json"], &image.devices);
    assert_eq!((err.as_str(), code), ("", 1));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["check"]["clean"], false);
    assert_eq!(report["check"]["errors"], 1);
    assert_eq!(report["check"]["issues"][0]["code"], "E0112");
    assert_eq!(report["check"]["issues"][0]["severity"], "error");
}

#[test]
fn note_is_shown_and_does_not_make_the_command_fail() {
    let image = images::image("crc32c-zstd").unwrap();
    let device = File::options().write(true).open(&image.devices[0]).unwrap();
    device.write_all_at(&[0; 4096], SECOND_COPY).unwrap();
    let (out, _, code) = check(&[], &image.devices);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("note E0101 superblock-damaged: "), "{out}");
    let verdict = " bytes used, no error found, 1 note(s)\n";
    assert!(out.contains(verdict), "{out}");

    let (out, _, code) = check(&["--format", "json"], &image.devices);
    assert_eq!(code, 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["check"]["clean"], true);
    assert_eq!(report["check"]["notes"], 1);
    assert_eq!(report["check"]["issues"][0]["severity"], "note");
}

#[test]
fn issues_beyond_the_limit_are_counted() {
    let image = images::image("crc32c-zstd").unwrap();
    craft::edit_superblock(&image.devices[0], |superblock| {
        superblock.bytes_used = (1 << 30).into();
        superblock.num_devices = 7.into();
    })
    .unwrap();
    let (out, _, code) = check(&["--max-issues", "1"], &image.devices);
    assert_eq!(code, 1);
    assert!(out.contains("1 more issues are not listed\n"), "{out}");
}

#[test]
fn copy_of_the_superblock_can_be_chosen() {
    let image = images::image("crc32c-zstd").unwrap();
    let (_, _, code) = check(&["-s", "1"], &image.devices);
    assert_eq!(code, 0);
    let device = File::options().write(true).open(&image.devices[0]).unwrap();
    device.write_all_at(&[7; 4096], SECOND_COPY).unwrap();
    let path = &image.devices[0];
    let args = |copy| ["check".as_ref(), "-s".as_ref(), copy, path.as_os_str()];
    fail(args("1".as_ref()), "superblock copy 1 cannot be used");
    fail(args("2".as_ref()), "there is no superblock copy 2");
}

#[test]
fn older_roots_can_be_checked() {
    let image = images::image("crc32c-zstd").unwrap();
    let (out, _, _) = check(&["--backup"], &image.devices);
    assert!(out.contains(" bytes used, "), "{out}");
    let path = image.devices[0].as_os_str();
    let args = ["check".as_ref(), "-r".as_ref(), "4096".as_ref(), path];
    fail(args, "no tree block can be read at 4096");
}

#[test]
fn repair_is_refused_by_name() {
    let image = images::image("crc32c-zstd").unwrap();
    let path = image.devices[0].as_os_str();
    let args = ["check".as_ref(), "--repair".as_ref(), path];
    fail(args, "--repair is not supported");
}

#[test]
fn an_image_without_a_volume_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let args = ["check".as_ref(), file.path().as_os_str()];
    fail(args, "is not a btrfs device");
}

#[test]
fn progress_is_written_to_a_file_on_request() {
    let image = images::image("crc32c-zstd").unwrap();
    let (_, silent, _) = check(&[], &image.devices);
    assert!(!silent.contains(" blocks, "), "{silent}");
    for options in [&["-p"][..], &["--progress", "--format", "json"]] {
        let (_, progress, code) = check(options, &image.devices);
        assert_eq!(code, 0);
        let lines: Vec<&str> = progress.lines().collect();
        assert_eq!(lines[0], "[1/8] checking superblocks");
        let last = lines.last().unwrap();
        assert!(
            last.starts_with("[8/8] checking references to extents: ")
                && last.ends_with(" 0 issues"),
            "{progress}"
        );
    }
}

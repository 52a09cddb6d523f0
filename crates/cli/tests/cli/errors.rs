//! Exit codes and messages that a script can use.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::process::{fail, location, succeed, ubtrfs};

#[test]
fn what_is_no_volume_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for command in ["ls", "tree", "stat", "cat"] {
        fail(
            [command.as_ref(), at("none").as_os_str()],
            "No such file or directory",
        );
        fail(
            [command.as_ref(), dir.path().as_os_str()],
            "is a directory, not an image",
        );
    }
    for command in ["df", "usage", "label"] {
        let args = [
            "filesystem".as_ref(),
            command.as_ref(),
            dir.path().as_os_str(),
        ];
        fail(args, "is a directory, not an image");
    }
    fs::write(at("empty"), "").unwrap();
    fail(
        ["ls".as_ref(), at("empty").as_os_str()],
        "not a btrfs device",
    );
    File::create(at("zeros")).unwrap().set_len(1 << 20).unwrap();
    fail(
        ["ls".as_ref(), at("zeros").as_os_str()],
        "not a btrfs device",
    );
    fail(["ls", "/dev/null"], "not an image file or a block device");
}

#[test]
fn usage_errors_exit_with_1() {
    for args in [
        &["nonsense"][..],
        &["ls"],
        &["ls", "--nonsense", "x"],
        &["filesystem", "nonsense"],
        &["export", "x"],
    ] {
        fail(args, "--help");
    }
    let help = ubtrfs()
        .args(["filesystem", "df", "--help"])
        .output()
        .unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
    let version = succeed(["--version"]);
    assert!(version.starts_with(b"ubtrfs "));
}

#[test]
fn commands_and_options_may_be_shortened() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    for command in ["fi df", "sub li", "dev us", "insp rooti", "fi us --hum"] {
        let mut args: Vec<&std::ffi::OsStr> = command.split(' ').map(AsRef::as_ref).collect();
        args.push(none.as_os_str());
        fail(args, "cannot access");
    }
}

#[test]
fn a_link_named_btrfs_or_fsck_is_that_command() {
    let dir = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let link = dir.path().join(name);
        symlink(env!("CARGO_BIN_EXE_ubtrfs"), &link).unwrap();
        Command::new(link)
    };
    let output = link("btrfs")
        .args(["fi", "df", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output = link("mkfs.btrfs").arg("--help").output().unwrap();
    assert!(output.status.success());
    let fsck = link("fsck.btrfs")
        .arg("-a")
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(fsck.status.success() && fsck.stdout.is_empty());
    let fsck = Command::new(dir.path().join("fsck.btrfs"))
        .arg("/nonexistent")
        .output()
        .unwrap();
    assert_eq!(fsck.status.code(), Some(8));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(succeed(["completions", shell])).unwrap();
        assert!(script.contains("logical-resolve"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    succeed(["man".as_ref(), dir.path().as_os_str()]);
    for page in ["ubtrfs.1", "ubtrfs-cp.1", "ubtrfs-filesystem-usage.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
}

/// An empty volume, made without the kernel.
fn empty_volume() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    let made = ubtrfs()
        .args(["mkfs", "-q", "-b", "128M"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    (dir, image)
}

#[test]
fn a_truncated_image_is_an_error() {
    let (_dir, path) = empty_volume();
    let len = fs::metadata(&path).unwrap().len();
    for cut in [len - 4096, len / 2, 1 << 20, 70_000, 65_536, 100] {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let output = ubtrfs().args(["ls", "-R"]).arg(&path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{cut}: {stderr}");
        assert!(
            stderr.contains("ERROR: ") && !stderr.contains("panicked"),
            "{stderr}"
        );
    }
}

#[test]
fn a_missing_path_or_subvolume_is_named() {
    let (_dir, image) = empty_volume();
    let missing = location(&image, "no/such/file");
    fail(["ls".as_ref(), missing.as_os_str()], "/no/such/file");
    let args = [
        "ls".as_ref(),
        "--subvolid".as_ref(),
        "99999".as_ref(),
        image.as_os_str(),
    ];
    fail(args, "subvolume 99999 does not exist");
    let args = [
        "ls".as_ref(),
        "--subvol".as_ref(),
        "nope".as_ref(),
        image.as_os_str(),
    ];
    fail(args, "cannot find subvolume 'nope'");
    let args = [
        "cp".as_ref(),
        "-a".as_ref(),
        image.as_os_str(),
        "/nonexistent/dir".as_ref(),
    ];
    fail(args, "cannot make directory '/nonexistent/dir'");
}

//! The examples work as documented.

use std::fs;
use std::path::Path;
use std::process::Command;

use ubtrfs::Volume;
use ubtrfs_sim::Scratch;

/// Runs an example and returns its output. Examples are built in the directory of the tests.
fn run(name: &str, args: &[&Path]) -> String {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(name);
    let output = Command::new(&program)
        .args(args.iter().map(|arg| arg.as_os_str()))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sandbox_rolls_back_what_failed() {
    let printed = run("sandbox", &[]);
    let wanted = "attempt 1: rolled back, version 1\nattempt 2: kept, version 2\n";
    assert_eq!(printed, wanted);
}

#[test]
fn archive_keeps_each_version_and_is_listed() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("archive.img");
    let folder = scratch.path().join("folder");
    let archive = || run("archive", &[&image, &folder]);
    fs::create_dir_all(folder.join("dir")).unwrap();
    fs::write(folder.join("kept"), "the same").unwrap();
    fs::write(folder.join("dir/changed"), "before").unwrap();
    fs::write(folder.join("removed"), "gone").unwrap();
    assert_eq!(archive(), "/version-1: 3 files written\n");
    assert_eq!(archive(), "/version-2: 0 files written\n");
    fs::write(folder.join("dir/changed"), "and after").unwrap();
    fs::remove_file(folder.join("removed")).unwrap();
    assert_eq!(archive(), "/version-3: 1 files written\n");

    let volume = Volume::open_read_only(&image).unwrap();
    let read = |path: &str| volume.root().read(path).unwrap();
    assert_eq!(read("/version-2/dir/changed"), b"before");
    assert_eq!(read("/version-3/dir/changed"), b"and after");
    assert_eq!(read("/version-1/removed"), b"gone");
    assert!(!volume.root().exists("/version-3/removed").unwrap());
    drop(volume);

    let listed = run("read_image", &[&image]);
    let size_of = |path: &str| {
        let line = listed.lines().find(|line| line.ends_with(path));
        let line = line.unwrap_or_else(|| panic!("no {path} in {listed}"));
        line.split_whitespace().next().map(str::to_owned)
    };
    assert_eq!(size_of(" /version-2/dir/changed").as_deref(), Some("6"));
    assert_eq!(size_of(" /current/dir/changed").as_deref(), Some("9"));
    assert_eq!(size_of(" /version-1/removed").as_deref(), Some("4"));
    assert!(!listed.contains(" /current/removed"));
}

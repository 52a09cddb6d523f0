//! Discards of freed space: by mount option, on request, and by commands on images.
//!
//! The tests observe them in the number of blocks that the image occupies.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use rustix::process::Signal;
use serde_json::Value;
use ubtrfs_sim::kernel::{self, KernelMount};

use crate::served::{
    MOMENT, Place, Server, alone, assert_ok, can_mount, ubtrfs, wait_until_nothing_is_at,
};

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65534;

/// Returns the bytes that the host has allocated for the image.
fn allocated(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() * 512
}

fn write_file(place: &Place, name: &str, len: u64) {
    // Data that a host does not omit.
    let bytes = vec![0x5a; len as usize];
    fs::write(place.mountpoint.join(name), bytes).unwrap();
}

fn sync(place: &Place) {
    assert_ok(ubtrfs().args(["filesystem", "sync"]).arg(&place.mountpoint));
}

/// Removes a file, and returns when its space is free: the kernel must forget the file first.
fn remove_file(place: &Place, name: &str) {
    let free_bytes = || {
        let shown = statvfs(&place.mountpoint).unwrap();
        shown.f_bfree * shown.f_frsize
    };
    let path = place.mountpoint.join(name);
    let len = fs::metadata(&path).unwrap().len();
    let wanted = free_bytes() + len;
    fs::remove_file(path).unwrap();
    let until = Instant::now() + MOMENT;
    while free_bytes() < wanted {
        assert!(Instant::now() < until, "the space of '{name}' stays in use");
        sync(place);
    }
}

fn remount(place: &Place, words: &str) -> Output {
    let words = format!("remount,{words}");
    let mut command = ubtrfs();
    command.args(["mount", "-o", &words]).arg(&place.mountpoint);
    command.output().unwrap()
}

/// Returns the figures of `filesystem discard` for the mount.
fn figures(place: &Place) -> Value {
    let mut command = ubtrfs();
    command.args(["filesystem", "discard", "--format", "json"]);
    let output = command.arg(&place.mountpoint).output().unwrap();
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    figures["filesystem-discard"].clone()
}

fn fstrim(path: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("fstrim");
    command.arg("-v").args(options).arg(path).output().unwrap()
}

/// Returns the number of bytes that fstrim printed.
fn trimmed(output: &Output) -> u64 {
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.split_once('(').and_then(|(_, rest)| {
        let digits = rest.split(' ').next()?;
        digits.parse().ok()
    });
    number.unwrap_or_else(|| panic!("{output:?}"))
}

/// Asserts that both checkers and the kernel find no error.
fn must_be_sound(image: &Path) {
    assert_ok(ubtrfs().args(["check", "-q"]).arg(image));
    if kernel::or_skip("the kernel's verdict on a trimmed volume") {
        assert_ok(
            Command::new("btrfs")
                .args(["check", "--readonly"])
                .arg(image),
        );
        let mount = KernelMount::new(&[image.to_owned()], "").unwrap();
        mount.scrub().unwrap();
        mount.unmount().unwrap();
    }
}

#[test]
fn option_says_when_freed_space_is_discarded() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    for (options, mode, is_small) in [
        ("rw", "async", false),
        ("discard=async", "async", false),
        ("discard", "sync", true),
        ("discard=sync", "sync", true),
        ("nodiscard", "none", false),
    ] {
        let mut server = place.serve_with(options);
        assert_eq!(figures(&place)["mode"], mode, "{options}");
        write_file(&place, "file", 64 * MIB);
        sync(&place);
        let full = allocated(&place.image);
        remove_file(&place, "file");
        sync(&place);
        let left = allocated(&place.image);
        assert_eq!(
            left + 60 * MIB < full,
            is_small,
            "{options}: {left} of {full}"
        );
        let waiting = figures(&place)["discardable_bytes"].as_u64().unwrap();
        assert_eq!(waiting >= 60 * MIB, mode == "async", "{options}: {waiting}");
        place.umount();
        assert!(server.end().unwrap().success());
    }
    must_be_sound(&place.image);
}

#[test]
fn remount_changes_when_freed_space_is_discarded() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let _server = place.serve();
    let modes = [
        ("discard=async", "async"),
        ("discard=sync", "sync"),
        ("nodiscard", "none"),
    ];
    for (from, _) in modes {
        for (to, mode) in modes {
            assert!(remount(&place, from).status.success());
            write_file(&place, "file", MIB);
            sync(&place);
            remove_file(&place, "file");
            assert!(remount(&place, to).status.success());
            assert_eq!(figures(&place)["mode"], mode, "from {from}");
            // A remount that does not mention the option leaves it unchanged.
            assert!(remount(&place, "commit=7").status.success());
            assert_eq!(figures(&place)["mode"], mode, "from {from}");
        }
    }
    let refused = remount(&place, "discard=later");
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("bad value 'later'"), "{said}");
    place.umount();
    must_be_sound(&place.image);
}

#[test]
fn fstrim_discards_what_is_free_and_says_how_much() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let mut server = place.serve_with("nodiscard");
    fs::create_dir(place.mountpoint.join("dir")).unwrap();
    write_file(&place, "kept", 8 * MIB);
    write_file(&place, "dir/gone", 100 * MIB);
    sync(&place);
    let full = allocated(&place.image);
    remove_file(&place, "dir/gone");
    let first = fstrim(&place.mountpoint, &[]);
    assert!(trimmed(&first) > 300 * MIB, "{first:?}");
    assert!(allocated(&place.image) + 95 * MIB < full);
    assert_eq!(figures(&place)["trim_bytes"], trimmed(&first));
    // It trims the free space of block groups again, but space without a chunk only once. Any directory
    // works.
    let again = fstrim(&place.mountpoint.join("dir"), &[]);
    assert!((1..trimmed(&first)).contains(&trimmed(&again)), "{again:?}");
    // No free extent is this long.
    let long = fstrim(&place.mountpoint, &["-m", "1T"]);
    assert_eq!(trimmed(&long), 0);
    assert!(remount(&place, "ro").status.success());
    assert!(
        trimmed(&fstrim(&place.mountpoint, &[])) > 0,
        "as the kernel does"
    );
    place.umount();
    assert!(server.end().unwrap().success());
    must_be_sound(&place.image);
    let _reader = place.serve_with("ro");
    let refused = fstrim(&place.mountpoint, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("Read-only file system"), "{said}");
    place.umount();
}

#[test]
fn discards_are_for_root_and_the_owner_of_the_mount_to_ask_for() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let _server = place.serve();
    for dir in [place.scratch.path(), &place.mountpoint] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir, open).unwrap();
    }
    let program = ubtrfs_sim::share_program(env!("CARGO_BIN_EXE_ubtrfs"), place.scratch.path());
    let program = program.unwrap();
    let mut trim = Command::new("fstrim");
    let refused = trim.arg(&place.mountpoint).uid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("Operation not permitted"), "{said}");
    let before = figures(&place);
    for words in [&["trim"][..], &["discard", "--iops", "1"]] {
        let mut command = Command::new(&program);
        command.arg("filesystem").args(words).arg(&place.mountpoint);
        let refused = command.uid(NOBODY).output().unwrap();
        assert!(!refused.status.success(), "{words:?}");
    }
    assert_eq!(figures(&place)["iops_limit"], before["iops_limit"]);
    assert_eq!(figures(&place)["trim_bytes"], 0);
    place.umount();
}

#[test]
fn limits_are_shown_and_set() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let _server = place.serve();
    let limits = || {
        let figures = figures(&place);
        let names = ["iops_limit", "kbps_limit", "max_discard_size"];
        names.map(|name| figures[name].as_u64().unwrap())
    };
    assert_eq!(limits(), [1000, 0, 64 * MIB]);
    let set = |words: &[&str]| {
        let mut command = ubtrfs();
        command.args(["filesystem", "discard"]).args(words);
        command
            .arg(&place.mountpoint)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(set(&["--iops", "10", "--max-size", "1M"]));
    assert_eq!(limits(), [10, 0, MIB]);
    assert!(set(&["--kbps", "2048", "--max-size", "0"]));
    assert_eq!(limits(), [10, 2048, 0]);
    for bad in [
        ["--iops", "-1"],
        ["--kbps", "4294967296"],
        ["--max-size", "1x"],
    ] {
        assert!(!set(&bad), "{bad:?}");
    }
    assert_eq!(limits(), [10, 2048, 0]);
    place.umount();
    let mut command = ubtrfs();
    let refused = command.args(["filesystem", "discard"]).arg(&place.image);
    assert!(!refused.output().unwrap().status.success(), "no mount");
}

#[test]
fn statistics_have_what_was_discarded() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let _server = place.serve();
    write_file(&place, "file", 32 * MIB);
    sync(&place);
    remove_file(&place, "file");
    sync(&place);
    let stats = |format: &str| {
        let mut command = ubtrfs();
        command.args(["filesystem", "stats", "--format", format]);
        let output = command.arg(&place.mountpoint).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(stats("text").contains("Discard:          async\n"));
    let json: Value = serde_json::from_str(&stats("json")).unwrap();
    let waiting = json["filesystem-stats"]["discard"]["discardable_bytes"].as_u64();
    let waiting = waiting.unwrap();
    assert!(waiting >= 32 * MIB, "{waiting}");
    let prometheus = stats("prometheus");
    let line = prometheus
        .lines()
        .find(|line| line.starts_with("ubtrfs_discardable_bytes{"));
    assert!(
        line.unwrap().ends_with(&format!(" {waiting}")),
        "{prometheus}"
    );
    place.umount();
}

#[test]
fn server_that_is_killed_in_a_trim_leaves_a_sound_volume() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(1024 * MIB);
    let mut server = place.serve_with("nodiscard");
    make_gaps(&place);
    let mut trim = Command::new("fstrim")
        .arg(&place.mountpoint)
        .spawn()
        .unwrap();
    let until = Instant::now() + MOMENT;
    while figures(&place)["trim_bytes"] == 0 {
        assert!(Instant::now() < until, "nothing was trimmed");
    }
    server.signal(Signal::KILL);
    server.end();
    trim.wait().unwrap();
    assert_ok(ubtrfs().arg("umount").arg(&place.mountpoint));
    wait_until_nothing_is_at(&place.mountpoint);
    must_be_sound(&place.image);
    let _server = place.serve();
    must_work(&place);
    place.umount();
}

/// Creates many free runs, separated by files that stay.
fn make_gaps(place: &Place) {
    for number in 0..2000 {
        write_file(place, &format!("file{number}"), 64 << 10);
    }
    sync(place);
    for number in (0..2000).step_by(2) {
        fs::remove_file(place.mountpoint.join(format!("file{number}"))).unwrap();
    }
    sync(place);
}

/// Asserts that the files are as `make_gaps` leaves them, and that the mount can create, sync and remove a
/// file.
fn must_work(place: &Place) {
    for number in (1..2000).step_by(2) {
        let bytes = fs::read(place.mountpoint.join(format!("file{number}"))).unwrap();
        assert!(bytes == vec![0x5a; 64 << 10], "file{number}");
    }
    write_file(place, "new", MIB);
    sync(place);
    fs::remove_file(place.mountpoint.join("new")).unwrap();
}

/// Kills fstrim while it waits for the mount. Returns false if fstrim had already ended.
fn kill_in_the_middle(place: &Place, server: &Server) -> bool {
    let trim_bytes = || figures(place)["trim_bytes"].as_u64().unwrap();
    let before = trim_bytes();
    let mut fstrim = Command::new("fstrim");
    let mut trim = fstrim.arg(&place.mountpoint).spawn().unwrap();
    let until = Instant::now() + MOMENT;
    while trim_bytes() == before {
        assert!(Instant::now() < until, "nothing was trimmed");
    }
    server.stop();
    let was_running = trim.try_wait().unwrap().is_none();
    trim.kill().unwrap();
    server.signal(Signal::CONT);
    // fstrim waits for an answer, which the server sends now.
    let ended = trim.wait().unwrap();
    was_running && ended.signal() == Some(Signal::KILL.as_raw())
}

#[test]
fn fstrim_that_is_killed_leaves_the_mount_at_work() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(1024 * MIB);
    let mut server = place.serve_with("nodiscard");
    make_gaps(&place);
    let is_killed = (0..20).any(|_| kill_in_the_middle(&place, &server));
    assert!(is_killed, "fstrim was done each time");
    must_work(&place);
    assert!(trimmed(&fstrim(&place.mountpoint, &[])) > 60 * MIB);
    must_work(&place);
    place.umount();
    assert!(server.end().unwrap().success());
    must_be_sound(&place.image);
}

#[test]
fn fstrim_works_over_io_uring() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(1024 * MIB);
    let mut server = match place.serve_over_uring("nodiscard") {
        Ok(server) => server,
        Err(error) => {
            ubtrfs_sim::skip_optional(format_args!("no FUSE over io_uring: {error}"));
            return;
        }
    };
    make_gaps(&place);
    // Other requests are answered in the meantime, regardless of the number of trims.
    std::thread::scope(|scope| {
        let trims = [(); 4].map(|()| scope.spawn(|| trimmed(&fstrim(&place.mountpoint, &[]))));
        must_work(&place);
        for trim in trims {
            assert!(trim.join().unwrap() > 60 * MIB);
        }
    });
    kill_in_the_middle(&place, &server);
    must_work(&place);
    place.umount();
    assert!(server.end().unwrap().success());
    must_be_sound(&place.image);
}

/// A directory whose files cannot have holes punched, as long as this lives.
struct WithoutHoles(PathBuf);

impl WithoutHoles {
    fn new(place: &Place) -> WithoutHoles {
        let dir = place.scratch.path().join("ramfs");
        fs::create_dir(&dir).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("none", &dir, "ramfs", flags, None).unwrap();
        WithoutHoles(dir)
    }
}

impl Drop for WithoutHoles {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn image_that_can_have_no_holes_is_reported_once() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(512 * MIB);
    let holeless = WithoutHoles::new(&place);
    let image = holeless.0.join("v.img");
    File::create(&image).unwrap().set_len(512 * MIB).unwrap();
    assert_ok(ubtrfs().args(["mkfs", "-q"]).arg(&image));
    let log = place.scratch.path().join("log");
    let options = format!("discard,log={}", log.display());
    let mut server = ubtrfs();
    server.args(["mount", "-o", &options]);
    assert_ok(server.args([&image, &place.mountpoint]));
    assert_eq!(figures(&place)["possible"], false);
    write_file(&place, "file", MIB);
    sync(&place);
    remove_file(&place, "file");
    sync(&place);
    let refused = fstrim(&place.mountpoint, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("not supported"), "{said}");
    place.umount();
    let logged = fs::read_to_string(log).unwrap();
    assert_eq!(logged.matches("takes discards").count(), 1, "{logged}");
    let trim = ubtrfs().args(["filesystem", "trim"]).arg(&image).output();
    let said = String::from_utf8(trim.unwrap().stderr).unwrap();
    assert!(
        said.contains("no device of the volume takes discards"),
        "{said}"
    );
    assert_ok(
        ubtrfs()
            .arg("rm")
            .arg("-f")
            .arg(format!("{}:/file", image.display())),
    );
}

/// Fills an image with only a tree of files. Returns the bytes that the host has allocated for it.
fn filled(place: &Place) -> u64 {
    let tree = place.scratch.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("dir/file{number}")), vec![0x5a; 10_000]).unwrap();
    }
    fs::write(tree.join("large"), vec![0x5a; 100 * MIB as usize]).unwrap();
    let target = format!("{}:/", place.image.display());
    assert_ok(ubtrfs().args(["cp", "-r"]).arg(&tree).arg(target));
    allocated(&place.image)
}

fn remove_tree(place: &Place, options: &[&str]) {
    let tree = format!("{}:/tree", place.image.display());
    assert_ok(ubtrfs().args(["rm", "-r"]).args(options).arg(tree));
}

#[test]
fn removed_tree_leaves_a_small_image_unless_disabled() {
    let place = Place::new(512 * MIB);
    let empty = allocated(&place.image);
    let full = filled(&place);
    assert!(full > 100 * MIB);
    remove_tree(&place, &[]);
    let left = allocated(&place.image);
    assert!(
        left <= empty + 4 * MIB,
        "{left}, and {empty} when it was new"
    );
    must_be_sound(&place.image);

    let place = Place::new(512 * MIB);
    filled(&place);
    remove_tree(&place, &["--nodiscard"]);
    assert!(allocated(&place.image) > 100 * MIB);
    let trim = |options: &[&str]| {
        let mut command = ubtrfs();
        command.args(["filesystem", "trim", "--format", "json"]);
        let output = command.args(options).arg(&place.image).output().unwrap();
        let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        figures["filesystem-trim"]["trimmed_bytes"]
            .as_u64()
            .unwrap()
    };
    // Space without a chunk is trimmed regardless of the minimum extent.
    let unallocated = trim(&["--minimum", "1T"]);
    assert!(unallocated > 100 * MIB);
    assert!(trim(&[]) > unallocated);
    let left = allocated(&place.image);
    assert!(left <= empty + 4 * MIB, "{left}");
    must_be_sound(&place.image);
    for bad in [["--length", "100"], ["--start", "16E"]] {
        let mut command = ubtrfs();
        command.args(["filesystem", "trim"]).args(bad);
        let refused = command.arg(&place.image).output().unwrap();
        assert!(!refused.status.success(), "{bad:?}");
    }
}

#[test]
fn shell_leaves_a_small_image_unless_disabled() {
    for (options, is_small) in [(&[][..], true), (&["--nodiscard"], false)] {
        let place = Place::new(512 * MIB);
        filled(&place);
        let mut shell = ubtrfs();
        shell.arg("shell").args(options).arg(&place.image);
        let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
        let mut script = shell.stdin.take().unwrap();
        script.write_all(b"rm -r tree\nmkdir new\n").unwrap();
        drop(script);
        assert!(shell.wait().unwrap().success());
        assert_eq!(allocated(&place.image) < 20 * MIB, is_small, "{options:?}");
        assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
    }
    let place = Place::new(512 * MIB);
    let mut shell = ubtrfs();
    shell.arg("shell").arg(&place.image).stdin(Stdio::piped());
    let mut shell = shell.stderr(Stdio::piped()).spawn().unwrap();
    let mut script = shell.stdin.take().unwrap();
    script.write_all(b"mkdir --nodiscard new\n").unwrap();
    drop(script);
    let refused = shell.wait_with_output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("a volume that is open already"), "{said}");
}

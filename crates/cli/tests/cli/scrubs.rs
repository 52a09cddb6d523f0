//! `ubtrfs scrub` on images and mounts, compared with btrfs-progs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::{Scratch, is_root_or_skip};

use crate::mounted::Mounted;
use crate::process::{location, succeed, ubtrfs};

const FILE_BYTES: usize = 12 << 20;

/// A volume with one large file, and a folder for the records of its scrubs.
struct Image {
    _scratch: Scratch,
    image: PathBuf,
}

impl Image {
    fn new(data: &str) -> Image {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("volume.img");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let mkfs = ["mkfs", "-q", "-d", data].map(AsRef::as_ref);
        succeed(mkfs.into_iter().chain([image.as_os_str()]));
        let file = scratch.path().join("file");
        fs::write(&file, content()).unwrap();
        let copied = location(&image, "/file");
        succeed(["cp".as_ref(), file.as_os_str(), &copied]);
        Image {
            image,
            _scratch: scratch,
        }
    }

    fn run(&self, words: &str) -> Output {
        run(words, &self.image)
    }

    /// Overwrites some copies of a sector of the file.
    fn damage(&self, sector: usize, count: usize) {
        let bytes = fs::read(&self.image).unwrap();
        let content = content();
        let wanted = &content[sector * 4096..(sector + 1) * 4096];
        let file = File::options().write(true).open(&self.image).unwrap();
        let places = (0..bytes.len()).step_by(4096);
        let places = places.filter(|&at| bytes[at..].starts_with(wanted));
        let places: Vec<usize> = places.take(count).collect();
        assert_eq!(places.len(), count);
        for at in places {
            file.write_all_at(&[0; 100], at as u64).unwrap();
        }
    }

    fn fsid(&self) -> String {
        let shown = self.run("status").stdout;
        let shown = String::from_utf8(shown).unwrap();
        let first = shown.lines().next().unwrap();
        first.strip_prefix("UUID:").unwrap().trim().to_owned()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if rustix::process::geteuid().is_root() {
            let record = format!("/var/lib/btrfs/scrub.status.{}", self.fsid());
            let _ = fs::remove_file(record);
        }
    }
}

/// Returns a content whose sectors all differ.
fn content() -> Vec<u8> {
    let words = (0..FILE_BYTES as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

fn run(words: &str, path: &Path) -> Output {
    let mut command = ubtrfs();
    command.arg("scrub").args(words.split(' ')).arg(path);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn assert_ended(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(out.contains(stdout), "{out}");
    assert!(err.contains(stderr), "{err}");
}

#[test]
fn damaged_copy_is_found_repaired_and_recorded() {
    let volume = Image::new("dup");
    assert_ended(&volume.run("status"), 0, "no stats available", "");
    volume.damage(3, 1);
    volume.damage(700, 1);
    let damaged = fs::read(&volume.image).unwrap();
    let found = volume.run("start -B -r");
    let warned = "WARNING: errors detected during scrubbing, 2 can be corrected\n";
    assert_ended(
        &found,
        0,
        "Error summary:    csum=2\n  Corrected:      2\n",
        warned,
    );
    assert!(damaged == fs::read(&volume.image).unwrap());
    let repaired = volume.run("start -B");
    let warned = "WARNING: errors detected during scrubbing, 2 corrected\n";
    assert_ended(&repaired, 0, "Error summary:    csum=2\n", warned);
    assert_ended(&volume.run("start -B -d"), 0, "(id 1) done", "");
    assert_ended(
        &volume.run("status"),
        0,
        "Error summary:    no errors found\n",
        "",
    );
    let check = ["check", "-q", "--check-data-csum"].map(AsRef::as_ref);
    succeed(check.into_iter().chain([volume.image.as_os_str()]));
    let stats = ubtrfs()
        .args(["device", "stats"])
        .arg(&volume.image)
        .output();
    assert!(text(&stats.unwrap().stdout).contains("corruption_errs  2"));
}

#[test]
fn file_without_a_good_copy_is_named() {
    let volume = Image::new("single");
    volume.damage(10, 1);
    volume.damage(11, 1);
    let found = volume.run("start -B");
    let named = "damaged: subvolume 5, /file: 40960-49151\n";
    assert_ended(
        &found,
        3,
        named,
        "ERROR: there are 1 uncorrectable errors\n",
    );
    let mut command = ubtrfs();
    command.args(["--format", "json", "scrub", "start", "-B"]);
    let found = command.arg(&volume.image).output().unwrap();
    let json: Value = serde_json::from_slice(&found.stdout).unwrap();
    let scrub = &json["scrub"];
    assert_eq!(scrub["status"], "finished");
    assert_eq!(scrub["counts"]["csum_errors"], 2);
    assert_eq!(scrub["counts"]["uncorrectable_errors"], 2);
    assert_eq!(scrub["damaged_files"][0]["paths"][0], "file");
    assert_eq!(scrub["damaged_files"][0]["ranges"][0][0], 40960);
}

#[test]
fn background_scrub_is_cancelled_and_resumed() {
    let volume = Image::new("dup");
    assert_ended(&volume.run("cancel"), 2, "", "not running\n");
    assert_ended(
        &volume.run("resume -B"),
        2,
        "scrub: nothing to resume for ",
        "",
    );
    let started = volume.run("start --limit 2m");
    assert_ended(&started, 0, "scrub started on ", "");
    assert!(text(&started.stdout).contains("Starting scrub on devid 1 (limit 2.00MiB/s)\n"));
    assert_ended(&volume.run("status"), 0, "Status:           running\n", "");
    let refused = "ERROR: Scrub is already running.\nTo cancel use 'ubtrfs scrub cancel ";
    assert_ended(&volume.run("start -B"), 1, "", refused);
    assert_ended(&volume.run("cancel"), 0, "scrub cancelled\n", "");
    assert_ended(&volume.run("status"), 0, "Status:           aborted\n", "");
    assert_ended(&volume.run("resume -B"), 0, "scrub done for ", "");
    let ended = volume.run("status -R");
    assert_ended(&ended, 0, "Status:           finished\n", "");
    let bytes = format!("\tdata_bytes_scrubbed: {}\n", 2 * FILE_BYTES);
    assert!(text(&ended.stdout).contains(&bytes), "{ended:?}");
    assert!(
        text(&ended.stdout).contains("Scrub resumed:    "),
        "{ended:?}"
    );
}

#[test]
fn mount_is_scrubbed_by_its_server() {
    let Some(mounted) = Mounted::new("", |_| {}) else {
        return;
    };
    fs::write(mounted.dir.join("file"), content()).unwrap();
    let done = run("start -B -R", &mounted.dir);
    let bytes = format!("\tdata_bytes_scrubbed: {FILE_BYTES}\n");
    assert_ended(&done, 0, &bytes, "");
    assert_ended(
        &run("start --limit 2m", &mounted.dir),
        0,
        "scrub started on ",
        "",
    );
    assert_ended(
        &run("status", &mounted.dir),
        0,
        "Status:           running\n",
        "",
    );
    assert_ended(
        &run("status", &mounted.image),
        0,
        "Status:           running\n",
        "",
    );
    assert_ended(&run("cancel", &mounted.dir), 0, "scrub cancelled\n", "");
    assert_ended(&run("cancel", &mounted.dir), 2, "", "not running\n");
    assert_ended(
        &run("start -B -r", &mounted.dir),
        0,
        "no errors found\n",
        "",
    );
    mounted.unmount();
}

/// Returns the lines of a text that are the same for every run.
fn steady(shown: &[u8]) -> Vec<String> {
    let is_steady = |line: &&str| !line.starts_with("Scrub started:") && !line.starts_with("Rate:");
    let shown = text(shown);
    let lines = shown.lines().filter(is_steady);
    lines.map(str::to_owned).collect()
}

#[test]
fn mount_of_the_kernel_is_scrubbed_as_by_progs() {
    if !or_skip("mount_of_the_kernel_is_scrubbed_as_by_progs") || !is_root_or_skip() {
        return;
    }
    let spec = MkfsSpec::new();
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("").unwrap();
    fs::write(mount.path().join("file"), content()).unwrap();
    mount.sync().unwrap();
    let by_progs = |words: &str| {
        let words = words.split(' ');
        let mut command = Command::new("btrfs");
        command.arg("scrub").args(words).arg(mount.path());
        command.output().unwrap()
    };
    let device = mount.loops()[0].path().to_owned();
    for words in [
        "start -B",
        "start -B -d",
        "start -B -R",
        "start -B -d -R -r",
    ] {
        let (ours, theirs) = (run(words, mount.path()), by_progs(words));
        assert_eq!(steady(&ours.stdout), steady(&theirs.stdout), "{words}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{words}");
        for words in ["status", "status -d", "status -R", "status --raw"] {
            let (ours, theirs) = (run(words, mount.path()), by_progs(words));
            assert_eq!(steady(&ours.stdout), steady(&theirs.stdout), "{words}");
        }
    }
    for words in ["resume -B", "cancel"] {
        let (ours, theirs) = (run(words, mount.path()), by_progs(words));
        assert_eq!(text(&ours.stdout), text(&theirs.stdout));
        assert_eq!(text(&ours.stderr), text(&theirs.stderr));
        assert_eq!(ours.status.code(), theirs.status.code());
    }
    assert_ended(&run("start -B -d", &device), 0, "(id 1) done", "");
    assert_eq!(run("limit", mount.path()).stdout, by_progs("limit").stdout);
    let set = run("limit -d 1 -l 20m", mount.path());
    assert_ended(
        &set,
        0,
        "Set scrub limit of devid 1 from unlimited to 20.00MiB/s\n",
        "",
    );
    assert_eq!(run("limit", mount.path()).stdout, by_progs("limit").stdout);
    mount.unmount().unwrap();
}

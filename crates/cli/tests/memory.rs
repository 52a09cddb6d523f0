//! A mount whose server may use little memory: other processes create, list, read and delete many files, and
//! the server survives. The test creates the server's control group, in either version, and nothing else is
//! in it.
//!
//! UBTRFS_SOAK: 100,000 files; otherwise 40,000, which would fill the group if the server ignored its limit.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const IMAGE_BYTES: u64 = 4 << 30;
const FILES_A_DIR: usize = 500;
/// Stored inline in the inode's own items, so that the files fill the delta.
const FILE_BYTES: usize = 1900;

#[derive(Clone, Copy)]
struct Load {
    limit_mib: u64,
    files: usize,
}

impl Load {
    fn wanted() -> Load {
        match std::env::var_os("UBTRFS_SOAK") {
            Some(_) => Load {
                limit_mib: 128,
                files: 100_000,
            },
            None => Load {
                limit_mib: 128,
                files: 40_000,
            },
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A control group that limits memory and swap. It is deleted when dropped.
struct Group {
    dir: PathBuf,
    unified: bool,
}

impl Group {
    /// Creates a control group, or returns the reason if that is impossible.
    fn new(limit_bytes: u64) -> Result<Group, String> {
        let name = format!("ubtrfs-memory-{}", std::process::id());
        let old = Path::new("/sys/fs/cgroup/memory");
        let (top, unified) = if old.join("memory.limit_in_bytes").exists() {
            (old, false)
        } else {
            (Path::new("/sys/fs/cgroup"), true)
        };
        if unified && !has_memory_controller(top) {
            return Err("no control group of memory is mounted".into());
        }
        let group = Group {
            dir: top.join(name),
            unified,
        };
        fs::create_dir(&group.dir).map_err(|error| format!("{}: {error}", group.dir.display()))?;
        group.write(["memory.limit_in_bytes", "memory.max"], limit_bytes)?;
        // The same limit for both together, so nothing is swapped. If swap is not counted there is no such
        // file.
        let _ = group.write(
            ["memory.memsw.limit_in_bytes", "memory.swap.max"],
            if unified { 0 } else { limit_bytes },
        );
        Ok(group)
    }

    fn file(&self, [old, new]: [&str; 2]) -> PathBuf {
        self.dir.join(if self.unified { new } else { old })
    }

    fn write(&self, names: [&str; 2], number: u64) -> Result<(), String> {
        let path = self.file(names);
        fs::write(&path, number.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn add(&self, pid: u32) {
        self.write(["tasks", "cgroup.procs"], pid.into()).unwrap();
    }

    /// Returns how many processes were killed because of the group's limit.
    fn kills(&self) -> u64 {
        let path = self.file(["memory.oom_control", "memory.events"]);
        let events = fs::read_to_string(path).unwrap();
        let kills = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        kills.map_or(0, |kills| kills.trim().parse().unwrap())
    }

    /// Returns the anonymous memory, which cannot be reclaimed without swap.
    fn anonymous_bytes(&self) -> u64 {
        let stat = fs::read_to_string(self.dir.join("memory.stat")).unwrap();
        let name = if self.unified { "anon " } else { "rss " };
        let bytes = stat.lines().find_map(|line| line.strip_prefix(name));
        bytes.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

fn has_memory_controller(top: &Path) -> bool {
    let children = fs::read_to_string(top.join("cgroup.subtree_control")).unwrap_or_default();
    children.split_whitespace().any(|one| one == "memory")
}

fn ubtrfs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
}

/// A server in its own group. It is killed if the test fails.
struct Mount {
    server: Child,
    dir: PathBuf,
}

impl Mount {
    fn serve(image: &Path, dir: &Path, group: &Group) -> Mount {
        // The shell is in the group before it executes the server.
        let mut server = Command::new("sh")
            .args(["-c", "read go; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_ubtrfs"))
            .args(["mount", "-f", "-o", "noblkdev,commit=3600"])
            .args([image, dir])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        group.add(server.id());
        server.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mount = Mount {
            server,
            dir: dir.to_owned(),
        };
        mount.await_mounted();
        mount
    }

    fn await_mounted(&self) {
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        while !is_mounted(&self.dir) {
            assert!(Instant::now() < deadline, "no mount");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn end(mut self) {
        let ended = ubtrfs().arg("umount").arg(&self.dir).status().unwrap();
        assert!(ended.success());
        assert!(self.server.wait().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(None) = self.server.try_wait() {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
        if is_mounted(&self.dir) {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut places = table.lines().map(|line| line.split(' ').nth(4));
    places.any(|mounted| mounted == dir.to_str())
}

fn make_files(dir: &Path, files: usize) {
    for number in 0..files {
        let below = dir.join(format!("d{}", number / FILES_A_DIR));
        if number % FILES_A_DIR == 0 {
            fs::create_dir(&below).unwrap();
        }
        let bytes = [number as u8; FILE_BYTES];
        fs::write(below.join(format!("file-{number}")), bytes).unwrap();
    }
}

/// Reads all files and returns how many there are.
fn read_files(dir: &Path) -> usize {
    let mut count = 0;
    for below in fs::read_dir(dir).unwrap() {
        for file in fs::read_dir(below.unwrap().path()).unwrap() {
            assert_eq!(fs::read(file.unwrap().path()).unwrap().len(), FILE_BYTES);
            count += 1;
        }
    }
    count
}

#[test]
fn server_lives_within_the_limit_of_its_group() {
    let load = Load::wanted();
    let limit = load.limit_mib << 20;
    let group = match Group::new(limit) {
        Ok(group) => group,
        Err(why) => {
            ubtrfs_sim::skip_optional(why);
            return;
        }
    };
    if !ubtrfs_sim::is_root_or_skip() || !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (image, dir) = (scratch.path().join("v.img"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let made = ubtrfs().args(["mkfs", "-q"]).arg(&image).status().unwrap();
    assert!(made.success());
    let began = Instant::now();
    let mut most = 0;
    let mount = Mount::serve(&image, &dir, &group);
    let mut look = |after: &str| {
        let bytes = group.anonymous_bytes();
        most = most.max(bytes);
        let seconds = began.elapsed().as_secs();
        say(&format!(
            "{after}: {} MiB anonymous, {seconds} s",
            bytes >> 20
        ));
        assert_eq!(group.kills(), 0, "{after}");
    };
    make_files(&dir, load.files);
    look("made");
    assert_eq!(read_files(&dir), load.files);
    look("read");
    let large = vec![1; 1 << 20];
    let mut file = File::create(dir.join("large")).unwrap();
    for _ in 0..2 * load.limit_mib {
        file.write_all(&large).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    look("large");
    for below in fs::read_dir(&dir).unwrap() {
        let below = below.unwrap().path();
        if below.is_dir() {
            fs::remove_dir_all(below).unwrap()
        } else {
            fs::remove_file(below).unwrap()
        }
    }
    look("deleted");
    mount.end();
    assert_eq!(group.kills(), 0);
    assert!(most < limit / 16 * 15, "{most} of {limit}");
    let checked = ubtrfs().args(["check", "-q"]).arg(&image).status().unwrap();
    assert!(checked.success());
}

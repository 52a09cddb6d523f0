//! A volume in an image, the process that serves it, and the checks of the image after that process was
//! killed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::Rng;

const IMAGE_BYTES: u64 = 1 << 30;
const BUSY_TRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(20);
/// Lines of the kernel's log to print.
const WORDS_OF_KERNEL: usize = 40;

pub(crate) fn ubtrfs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
}

pub(crate) fn system(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command
}

/// Writes directly to standard error, which the test harness does not capture.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub(crate) fn expect_success(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

pub(crate) fn seed() -> u64 {
    let seed = std::env::var("UBTRFS_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(4);
    say(&format!("UBTRFS_SEED={seed}"));
    seed
}

pub(crate) fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    /// Creates a bench with an empty volume.
    pub(crate) fn new() -> Bench {
        let bench = Bench {
            dir: tempfile::tempdir().unwrap(),
        };
        // Database servers run as other users.
        fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(bench.mountpoint()).unwrap();
        let image = File::create(bench.image()).unwrap();
        image.set_len(IMAGE_BYTES).unwrap();
        let made = ubtrfs().args(["-q", "mkfs"]).arg(bench.image()).output();
        expect_success("mkfs", &made.unwrap());
        bench
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = self.mountpoint();
        let mut places = table.lines().map(|line| line.split(' ').nth(4));
        places.any(|mounted| mounted == place.to_str())
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("v.img")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Serves the mount until the process is killed.
    pub(crate) fn serve_with(&self, options: &str) -> Child {
        let mut child = ubtrfs()
            .args(["mount", "-f", "-o", options])
            .args([self.image(), self.mountpoint()])
            .env("UBTRFS_LOG", "ubtrfs=info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut all = String::new();
        loop {
            let from = all.len();
            if said.read_line(&mut all).unwrap() == 0 {
                let _ = child.wait();
                panic!("no mount: {all}");
            }
            if all[from..].contains("mounted") {
                break;
            }
        }
        // The server must not block on its output.
        thread::spawn(move || io::copy(&mut said, &mut io::stderr()));
        child
    }

    pub(crate) fn umount(&self) {
        let ended = ubtrfs().arg("umount").arg(self.mountpoint()).output();
        expect_success("umount", &ended.unwrap());
    }

    /// Ends a server without any user, which ends at once.
    pub(crate) fn end(&self, mut server: Child) {
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
        assert!(!self.is_mounted());
    }

    /// Asserts that both checkers find no error.
    pub(crate) fn check(&self) {
        check_image(&self.image());
    }

    /// Returns whether the superblock points to a log that the next mount replays.
    pub(crate) fn has_log(&self) -> bool {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        let image = File::open(self.image()).unwrap();
        image
            .read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
            .unwrap();
        Superblock::from_block(&block).unwrap().has_log()
    }

    /// Runs `look` on a copy of the volume on the kernel's mount, which replays the log. Returns false if the
    /// kernel has no btrfs.
    pub(crate) fn on_kernel(&self, look: impl FnOnce(&Path)) -> bool {
        let dir = self.dir.path().join("kernel");
        fs::create_dir_all(&dir).unwrap();
        let copy = self.dir.path().join("copy.img");
        let copied = system("cp")
            .arg("--sparse=always")
            .args([self.image(), copy.clone()])
            .output();
        expect_success("cp", &copied.unwrap());
        let mounted = system("mount")
            .args(["-t", "btrfs", "-o", "loop"])
            .args([&copy, &dir])
            .output()
            .unwrap();
        if !mounted.status.success() {
            let said = String::from_utf8_lossy(&mounted.stderr);
            ubtrfs_sim::skip(format_args!("the kernel's mount: {}", said.trim_end()));
            return false;
        }
        let looked = std::panic::catch_unwind(AssertUnwindSafe(|| look(&dir)));
        let ended = unmount(&dir);
        if let Err(panic) = looked {
            say_last_words_of_kernel();
            self.say_where_a_fault_is(&copy);
            std::panic::resume_unwind(panic);
        }
        expect_success("umount of the kernel's mount", &ended);
        check_image(&copy);
        true
    }
}

impl Bench {
    /// Prints the checkers' findings in the image, in the copy that the kernel mounted, and in another copy.
    /// The image may be intact while a copy is not. The other copy is made without looking for holes.
    fn say_where_a_fault_is(&self, copy: &Path) {
        let other = self.dir.path().join("other.img");
        let copied = system("cp")
            .arg("--sparse=never")
            .args([self.image(), other.clone()])
            .status();
        say(&format!("another copy: {copied:?}"));
        for image in [&self.image(), copy, &other] {
            let is_sound = std::panic::catch_unwind(|| check_image(image)).is_ok();
            say(&format!("{} is sound: {is_sound}", image.display()));
        }
        let differs = system("cmp").args([copy, &other]).output();
        say(&format!(
            "the copies, one changed by the mount: {differs:?}"
        ));
    }
}

/// Prints the end of the kernel's log: it is the only place that shows why the kernel refused a block.
fn say_last_words_of_kernel() {
    let Ok(log) = system("dmesg").output() else {
        return;
    };
    let log = String::from_utf8_lossy(&log.stdout);
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.len().saturating_sub(WORDS_OF_KERNEL);
    say(&lines[last..].join("\n"));
}

/// Retries while the mount is busy: a process that another test has just started may still hold its files.
fn unmount(dir: &Path) -> Output {
    for _ in 0..BUSY_TRIES {
        let ended = system("umount").arg(dir).output().unwrap();
        if !String::from_utf8_lossy(&ended.stderr).contains("busy") {
            return ended;
        }
        thread::sleep(BUSY_WAIT);
    }
    system("umount").arg(dir).output().unwrap()
}

fn check_image(image: &Path) {
    let mut ours = ubtrfs();
    let ours = ours.args(["check", "--check-data-csum"]).arg(image);
    expect_success("ubtrfs check", &ours.output().unwrap());
    let theirs = system("btrfs").arg("check").arg(image).output();
    match theirs {
        Ok(theirs) => expect_success("btrfs check", &theirs),
        Err(error) => ubtrfs_sim::skip(format_args!("btrfs check: {error}")),
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for dir in ["mnt", "kernel"] {
            let _ = system("umount")
                .arg("-l")
                .arg(self.dir.path().join(dir))
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Changes names, sizes and contents, and syncs nothing.
pub(crate) fn churn(dir: &Path, prefix: &str, mut rng: Rng, is_over: &AtomicBool) {
    let name = |number: u64| dir.join(format!("{prefix}-churn-{number}"));
    while !is_over.load(Ordering::Relaxed) {
        let (a, b) = (name(rng.below(40)), name(rng.below(40)));
        let _ = match rng.below(6) {
            0 | 1 => fs::write(&a, vec![b'x'; rng.below(100_000) as usize]),
            2 => fs::rename(&a, &b),
            3 => fs::remove_file(&a),
            4 => fs::hard_link(&a, &b),
            _ => File::options()
                .write(true)
                .open(&a)
                .and_then(|file| file.set_len(rng.below(50_000))),
        };
    }
}

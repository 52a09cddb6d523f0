//! How mounts end: what is written by then, who is waited for, and what signals do.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, LoopDevice};

/// For what takes a moment, on a machine that is busy.
const MOMENT: Duration = Duration::from_secs(60);

fn ubtrfs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
}

fn assert_ok(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// Held by a test as long as it has mounts: another's namespace would keep them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether mounts can be made and laid over each other here; says so if not.
fn can_mount() -> bool {
    let can = geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        // Past the capture of the test harness.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: needs root and /dev/fuse to mount"
        );
    }
    can
}

/// A new volume, and a directory to mount it on.
struct Place {
    scratch: Scratch,
    image: PathBuf,
    mountpoint: PathBuf,
}

impl Place {
    fn new(len_bytes: u64) -> Place {
        let scratch = Scratch::new().unwrap();
        let image = scratch.file("v.img", len_bytes).unwrap();
        assert_ok(ubtrfs().args(["mkfs", "-q"]).arg(&image));
        let mountpoint = scratch.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        Place {
            scratch,
            image,
            mountpoint,
        }
    }

    fn serve(&self) -> Server {
        Server::start(&self.image, &self.mountpoint)
    }
}

/// A process that serves a mount, and what it says.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    /// Returns when the mount is there.
    fn start(source: &Path, mountpoint: &Path) -> Server {
        let mut child = ubtrfs()
            .args(["mount", "-f", "-o", "loglevel=info"])
            .args([source, mountpoint])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let server = Server { child, lines };
        server.wait_for("mounted");
        server
    }

    /// Waits until it says something with `word` in it.
    fn wait_for(&self, word: &str) {
        let until = Instant::now() + MOMENT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("it never said '{word}'"));
            if line.contains(word) {
                return;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// None if it does not end.
    fn end(&mut self) -> Option<ExitStatus> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
        let timeout = Timespec::try_from(MOMENT).unwrap();
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut ended, Some(&timeout)).unwrap() {
            0 => None,
            _ => Some(self.child.wait().unwrap()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process with a mount namespace of its own, which keeps all mounts that are there when it is made.
struct Elsewhere {
    child: Child,
    _stays: Option<ChildStdin>,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("echo; exec 1>&-; read _")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut made = Vec::new();
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_to_end(&mut made).unwrap();
        assert_eq!(made, b"\n", "no namespace");
        let stays = child.stdin.take();
        Elsewhere {
            child,
            _stays: stays,
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is mounted at `path`, the last one last.
fn types_at(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = table.lines().map(|line| line.split(' ').collect());
    let at = lines.filter(|fields: &Vec<&str>| Path::new(fields[4]) == path);
    at.map(|fields| {
        let hyphen = fields.iter().position(|field| *field == "-").unwrap();
        fields[hyphen + 1].to_owned()
    })
    .collect()
}

fn wait_until_nothing_is_at(path: &Path) {
    let table = File::open("/proc/self/mountinfo").unwrap();
    let timeout = Timespec::try_from(MOMENT).unwrap();
    while !types_at(path).is_empty() {
        let mut changed = [PollFd::new(&table, PollFlags::PRI)];
        assert_ne!(poll(&mut changed, Some(&timeout)).unwrap(), 0, "mounted");
    }
}

fn generation(device: &File) -> u64 {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    device
        .read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .unwrap();
    Superblock::from_block(&block).unwrap().generation.get()
}

#[test]
fn nothing_is_written_to_a_device_after_it_was_unmounted() {
    if !kernel::or_skip("nothing_is_written_to_a_device_after_it_was_unmounted") {
        return;
    }
    let _alone = alone();
    let place = Place::new(1 << 30);
    let device = LoopDevice::attach(&place.image).unwrap();
    let mut server = Server::start(device.path(), &place.mountpoint);
    assert_eq!(types_at(&place.mountpoint), ["fuseblk.ubtrfs"]);
    let doomed = place.mountpoint.join("doomed");
    assert_ok(ubtrfs().args(["subvolume", "create"]).arg(&doomed));
    // Block groups that are empty afterwards, and a tree of many blocks.
    fs::write(doomed.join("large"), vec![7; 200 << 20]).unwrap();
    for number in 0..2000 {
        fs::write(doomed.join(format!("file{number}")), "small").unwrap();
    }
    rustix::fs::sync();
    fs::write(place.mountpoint.join("last"), "last\n").unwrap();
    assert_ok(ubtrfs().args(["subvolume", "delete"]).arg(&doomed));
    unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();

    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(OFlags::EXCL.bits().cast_signed());
    let claimed = options.open(device.path()).unwrap();
    let before = generation(&claimed);
    assert!(server.end().unwrap().success());
    assert_eq!(generation(&claimed), before);
    drop(claimed);
    assert_ok(ubtrfs().args(["check", "-q"]).arg(device.path()));
    let last = ubtrfs()
        .arg("cat")
        .arg(format!("{}:/last", device.path().display()))
        .output()
        .unwrap();
    assert_eq!(last.stdout, b"last\n");
}

#[test]
fn a_signal_leaves_what_lies_over_the_mount() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let data = None::<&std::ffi::CStr>;
    let flags = MountFlags::empty();
    rustix::mount::mount("none", &place.mountpoint, "tmpfs", flags, data).unwrap();
    server.signal(Signal::TERM);
    server.wait_for("another mount");
    assert_eq!(types_at(&place.mountpoint), ["fuse.ubtrfs", "tmpfs"]);
    let by_image = ubtrfs().arg("umount").arg(&place.image).output().unwrap();
    assert_eq!(by_image.status.code(), Some(1));
    assert_eq!(types_at(&place.mountpoint), ["fuse.ubtrfs", "tmpfs"]);

    unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();
    fs::write(place.mountpoint.join("file"), "still served").unwrap();
    server.signal(Signal::TERM);
    assert!(server.end().unwrap().success());
    assert!(types_at(&place.mountpoint).is_empty());
}

#[test]
fn a_second_signal_ends_a_mount_that_lives_on_elsewhere() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let elsewhere = Elsewhere::new();
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    server.signal(Signal::TERM);
    wait_until_nothing_is_at(&place.mountpoint);
    server.signal(Signal::TERM);
    let ended = server.end().expect("it does not hear signals any more");
    assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()));
    let inside = format!("{}:/file", place.image.display());
    let written = ubtrfs().arg("cat").arg(inside).output().unwrap();
    assert_eq!(written.stdout, b"written\n");
    drop(elsewhere);
}

#[test]
fn umount_does_not_wait_for_a_mount_that_lives_on_elsewhere() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let elsewhere = Elsewhere::new();
    let log = File::create(place.scratch.path().join("log")).unwrap();
    let mut umount = Server {
        child: ubtrfs()
            .arg("umount")
            .arg(&place.mountpoint)
            .stderr(log)
            .spawn()
            .unwrap(),
        lines: channel().1,
    };
    assert!(umount.end().expect("it waits").success());
    let said = fs::read_to_string(place.scratch.path().join("log")).unwrap();
    assert!(said.contains("mounted elsewhere"), "{said}");
    assert!(types_at(&place.mountpoint).is_empty());
    drop(elsewhere);
    assert!(server.end().unwrap().success());
}

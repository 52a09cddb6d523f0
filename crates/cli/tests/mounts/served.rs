//! A process that serves a mount, and the operations that tests use on it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use ubtrfs_sim::Scratch;

use crate::switch;

/// Timeout for short operations, on a busy machine.
pub(crate) const MOMENT: Duration = Duration::from_secs(60);

pub(crate) fn ubtrfs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
}

pub(crate) fn assert_ok(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// Returns a lock that a test holds while it has mounts. Another test's namespace would keep them alive.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether mounts and overlays of them can be made here; prints it if not.
pub(crate) fn can_mount() -> bool {
    ubtrfs_sim::is_root_or_skip() && ubtrfs_sim::has_fuse_or_skip()
}

/// A new volume, and a directory to mount it on.
pub(crate) struct Place {
    pub(crate) scratch: Scratch,
    pub(crate) image: PathBuf,
    pub(crate) mountpoint: PathBuf,
}

impl Place {
    pub(crate) fn new(len_bytes: u64) -> Place {
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

    pub(crate) fn serve(&self) -> Server {
        Server::start(&self.image, &self.mountpoint)
    }

    pub(crate) fn serve_with(&self, options: &str) -> Server {
        Server::with(options, &self.image, &self.mountpoint)
    }

    /// Starts a server that uses FUSE over io_uring.
    ///
    /// Errors: the kernel has no switch for FUSE over io_uring, or we may not use it.
    pub(crate) fn serve_over_uring(&self, options: &str) -> io::Result<Server> {
        let options = format!("{options},transport=uring");
        switch::with_uring(true, || {
            Server::spawn(&options, &self.image, &self.mountpoint)
        })
    }

    pub(crate) fn umount(&self) {
        assert_ok(ubtrfs().arg("umount").arg(&self.mountpoint));
    }

    /// Returns the text of a file of the image.
    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(read_from(&self.image, name)).unwrap()
    }
}

/// Returns the content of a file of an image or device, by `cat`.
pub(crate) fn read_from(source: &Path, name: &str) -> Vec<u8> {
    let file = format!("{}:/{name}", source.display());
    ubtrfs().arg("cat").arg(file).output().unwrap().stdout
}

/// A process that serves a mount, and its output.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Server {
    /// Starts a server and returns when the mount exists.
    pub(crate) fn start(source: &Path, mountpoint: &Path) -> Server {
        Server::with("rw", source, mountpoint)
    }

    pub(crate) fn with(options: &str, source: &Path, mountpoint: &Path) -> Server {
        switch::with_uring(false, || Server::spawn(options, source, mountpoint)).unwrap()
    }

    /// Mounts with the current setting of the switch for FUSE over io_uring. Other processes may turn it on
    /// for a moment.
    fn spawn(options: &str, source: &Path, mountpoint: &Path) -> Server {
        let mut child = ubtrfs()
            .args(["mount", "-f", "-o", "loglevel=info", "-o", options])
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

    /// Waits until the server prints a line that contains `word`.
    pub(crate) fn wait_for(&self, word: &str) {
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

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the server, and returns when each thread has stopped. A thread that is about to read a request
    /// still reads it.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let runs = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat"));
            stat.is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('T'))
        };
        let until = Instant::now() + MOMENT;
        while fs::read_dir(&tasks).unwrap().flatten().any(runs) {
            assert!(Instant::now() < until, "it does not stop");
            thread::yield_now();
        }
    }

    /// Waits for the end of the server; returns None if it does not end.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        ended_within_a_moment(Pid::from_child(&self.child)).then(|| self.child.wait().unwrap())
    }
}

pub(crate) fn ended_within_a_moment(process: Pid) -> bool {
    let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let timeout = Timespec::try_from(MOMENT).unwrap();
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut ended, Some(&timeout)).unwrap() > 0
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the types of the file systems mounted at `path`, the most recent one last.
pub(crate) fn types_at(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = table.lines().map(|line| line.split(' ').collect());
    let at = lines.filter(|fields: &Vec<&str>| Path::new(fields[4]) == path);
    at.map(|fields| {
        let hyphen = fields.iter().position(|field| *field == "-").unwrap();
        fields[hyphen + 1].to_owned()
    })
    .collect()
}

pub(crate) fn wait_until_nothing_is_at(path: &Path) {
    let table = File::open("/proc/self/mountinfo").unwrap();
    let timeout = Timespec::try_from(MOMENT).unwrap();
    while !types_at(path).is_empty() {
        let mut changed = [PollFd::new(&table, PollFlags::PRI)];
        assert_ne!(poll(&mut changed, Some(&timeout)).unwrap(), 0, "mounted");
    }
}

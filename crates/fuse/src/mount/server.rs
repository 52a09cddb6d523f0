//! The process behind a mount.
//!
//! A server outlives its mount until the volume is closed and its locks are released, and umount waits for that.
//! Nothing names the server of a mount directly. But for each descriptor of `/dev/fuse` the kernel exposes the number
//! of its connection, which is the number of the mount's device. If the kernel does not expose it, or this user may not
//! inspect the process, no server is found.
//!
//! Not here: the server's own report on its connection (`Teardown`), which needs neither `/proc` nor rights.

use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use ubtrfs_device::{clock, thread};

use super::detach::{connection, find, resolve};
use super::holders::holders_of;
use crate::mount_table::TableEntry;

/// The maximum time of the search for a server.
const LOOKS_AT_MOST: Duration = Duration::from_secs(5);
/// Part of the names of processes that serve mounts: the kernel keeps 15 bytes, also of `mount.fuse.ubtrfs`.
const OUR_NAME: &str = "ubtr";
/// Fields of `/proc/PID/stat`, counted after the name of the program: user and system time.
const CPU_TIMES: [usize; 2] = [11, 12];
const WORKS_SEEN_EVERY: Duration = Duration::from_millis(500);

/// A process that serves a mount.
#[derive(Debug)]
pub struct Server {
    pid: u32,
    process: OwnedFd,
    folder: PathBuf,
    /// The device number of the mount.
    device: (u32, u32),
    /// The server's descriptor of the connection.
    descriptor: RawFd,
}

/// The state of a server after its mount was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    Ended,
    /// The file system is still mounted elsewhere, for example in another namespace.
    LivesOn,
    /// It has not ended, and made no visible progress for a while.
    Stalled,
}

/// Returns the mount point of the mount that a process serves, if it serves one.
pub fn mountpoint_served_by(pid: u32) -> Option<PathBuf> {
    let table = super::mount_table().ok()?;
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let ours = table.into_iter().filter(TableEntry::is_ours);
    let mut served =
        ours.filter(|entry| descriptor_of(&folder, connection(entry.device)).is_some());
    served.next().map(|entry| entry.mountpoint)
}

/// Returns the mount point of the mount with this source, if there is one.
pub fn mountpoint_of(source: &Path) -> Option<PathBuf> {
    let mut table = super::mount_table().ok()?.into_iter();
    let found = table.find(|entry| entry.is_ours() && entry.source == source);
    found.map(|entry| entry.mountpoint)
}

impl Server {
    /// Finds the process, other than this one, behind the mount that `unmount` would choose for `path`.
    pub fn of(path: &Path) -> Option<Server> {
        let table = super::mount_table().ok()?;
        let entry = find(&table, &resolve(path).ok()?)?;
        let device = entry.device;
        // The kernel blocks access to a process that hangs in exec. A process that tries it would wait, so another
        // thread does the inspection.
        let (sender, receiver) = mpsc::channel();
        let looks = thread::start("ubtrfs-look", move || Server::look_behind(device, &sender));
        looks.ok()?;
        let until = clock::now() + LOOKS_AT_MOST;
        let mut found = None;
        let time_left = || until.saturating_duration_since(clock::now());
        while let Ok(server) = receiver.recv_timeout(time_left()) {
            found = Some(server);
        }
        found
    }

    /// Sends candidates for the server, the most likely last.
    fn look_behind(device: (u32, u32), found: &Sender<Server>) {
        let Ok(processes) = fs::read_dir("/proc") else {
            return;
        };
        let is_ours_by_name = |folder: &PathBuf| {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            name.contains(OUR_NAME)
        };
        let (ours, others): (Vec<_>, Vec<_>) = processes
            .flatten()
            .map(|process| process.path())
            .partition(is_ours_by_name);
        // Usually no other process needs to be inspected, and an inspection may hang.
        let mut sent_one = false;
        for folder in ours.into_iter().chain(others) {
            let Some(server) = Server::in_folder(folder, device) else {
                continue;
            };
            // The kernel reuses the number of an ended mount for the next one, and the former server may still exist.
            // It is chosen only if there is no other.
            let has_ended = server.connection() == Some(false);
            if has_ended && sent_one {
                continue;
            }
            sent_one = has_ended;
            if found.send(server).is_err() || !has_ended {
                return;
            }
        }
    }

    /// Returns the process of this folder of `/proc` if it has the mount's connection, or one of the same number. Never
    /// returns this process.
    fn in_folder(folder: PathBuf, device: (u32, u32)) -> Option<Server> {
        let pid: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        if pid == std::process::id() {
            return None;
        }
        let connection = connection(device);
        descriptor_of(&folder, connection)?;
        let process = Pid::from_raw(pid.cast_signed())?;
        let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
        // It was still the same process when the pidfd was opened.
        let descriptor = descriptor_of(&folder, connection)?;
        Some(Server {
            pid,
            process,
            folder,
            device,
            descriptor,
        })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether it runs the same program as this process, and so ends when its mount does.
    pub fn runs_this_program(&self) -> bool {
        let program = |folder: &Path| {
            let file = fs::metadata(folder.join("exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        let this = program(Path::new("/proc/self"));
        this.is_some() && program(&self.folder) == this
    }

    /// Waits for its end, unless its file system lives on, or it makes no visible progress for `patience`.
    pub fn wait(&self, lingers: Duration, patience: Duration) -> Afterwards {
        // A process may access the file system at the moment of the unmount.
        if self.ends_within(lingers.min(patience)) {
            return Afterwards::Ended;
        }
        if self.is_connected() {
            return Afterwards::LivesOn;
        }
        let mut work = Work::of(Some(self));
        while !self.ends_within(WORKS_SEEN_EVERY) {
            if work.is_stalled(patience) {
                return Afterwards::Stalled;
            }
        }
        Afterwards::Ended
    }

    /// Returns whether it ends within `time`.
    pub fn ends_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut process = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut process, timeout.as_ref()).is_ok_and(|ended| ended > 0)
    }

    /// Returns whether a signal has stopped it, so that it does nothing until it is continued.
    pub fn is_stopped(&self) -> bool {
        let state = self.stat().and_then(|fields| fields.chars().next());
        matches!(state, Some('T' | 't'))
    }

    /// Returns whether the connection is alive. A copy of its descriptor shows this, if this process may have one.
    /// Otherwise the mounts of all processes are searched.
    fn is_connected(&self) -> bool {
        match self.connection() {
            Some(is_connected) => is_connected,
            None => !holders_of(self.device).is_empty(),
        }
    }

    /// Returns whether the connection is alive, by a copy of the server's descriptor. Returns `None` if it cannot be
    /// copied.
    fn connection(&self) -> Option<bool> {
        if descriptor_of(&self.folder, connection(self.device)) != Some(self.descriptor) {
            return None;
        }
        // A copy that outlives the server would keep its connection alive.
        let copy = pidfd_getfd(&self.process, self.descriptor, PidfdGetfdFlags::empty()).ok()?;
        let mut device = [PollFd::new(&copy, PollFlags::empty())];
        poll(&mut device, Some(&Timespec::default())).ok()?;
        Some(!device[0].revents().contains(PollFlags::ERR))
    }

    /// Returns the fields of `/proc/PID/stat` after the name of the program, which may contain anything.
    fn stat(&self) -> Option<String> {
        let stat = fs::read_to_string(self.folder.join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(fields.to_owned())
    }

    /// Returns the figures that change while the process works: CPU time, and the bytes read and written if they are
    /// available.
    fn work_done(&self) -> Option<Vec<String>> {
        let stat = self.stat()?;
        let fields: Vec<_> = stat.split(' ').collect();
        let mut done: Vec<String> = CPU_TIMES
            .iter()
            .filter_map(|&at| fields.get(at).map(|&field| field.to_owned()))
            .collect();
        done.extend(fs::read_to_string(self.folder.join("io")));
        Some(done)
    }
}

/// Tracks whether a process makes progress, as it does during a commit. A process that cannot be inspected makes no
/// visible progress.
#[derive(Debug)]
pub struct Work<'a> {
    server: Option<&'a Server>,
    done: Option<Vec<String>>,
    since: Instant,
}

impl Work<'_> {
    pub fn of(server: Option<&Server>) -> Work<'_> {
        Work {
            server,
            done: server.and_then(Server::work_done),
            since: clock::now(),
        }
    }

    /// Returns whether it is stopped, or made no visible progress for `patience`. Call it periodically.
    pub fn is_stalled(&mut self, patience: Duration) -> bool {
        if self.server.is_some_and(Server::is_stopped) {
            return true;
        }
        let done = self.server.and_then(Server::work_done);
        if done != self.done {
            self.done = done;
            self.since = clock::now();
        }
        clock::now() - self.since >= patience
    }
}

/// Returns a process's descriptor of the connection.
fn descriptor_of(process: &Path, connection: u32) -> Option<RawFd> {
    let wanted = format!("fuse_connection:\t{connection}");
    let mut descriptors = fs::read_dir(process.join("fd")).ok()?.flatten();
    let found = descriptors.find(|descriptor| {
        let info = process.join("fdinfo").join(descriptor.file_name());
        fs::read_link(descriptor.path()).is_ok_and(|file| file == Path::new("/dev/fuse"))
            && fs::read_to_string(info).is_ok_and(|info| info.lines().any(|line| line == wanted))
    })?;
    found.file_name().to_str()?.parse().ok()
}

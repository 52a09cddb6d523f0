//! The process behind a mount.
//!
//! A mount's server outlives the mount until the volume is closed and its locks are free, and umount waits for
//! that. Nothing names the server of a mount directly. But the kernel tells, for each descriptor of `/dev/fuse`,
//! which connection it is of. The number of the connection is that of the mount's device. Kernels that do not tell,
//! and processes that this user may not look into, just give no server.
//!
//! Not here: the server's own word on whether its connection lives (`Afterlife`), which needs neither `/proc` nor
//! rights.

use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use ubtrfs_device::{clock, thread};

use super::detach::{find, resolve};
use super::holders::holders_of;
use crate::mount_table::TableEntry;

/// How long it is looked for a server.
const LOOKS_AT_MOST: Duration = Duration::from_secs(5);
/// In the names of processes that serve mounts: the kernel keeps 15 bytes, of `mount.fuse.ubtrfs` too.
const OUR_NAME: &str = "ubtr";
/// Fields of `/proc/PID/stat`, counted behind the name of the program: user and system time.
const CPU_TIMES: [usize; 2] = [11, 12];
const WORKS_SEEN_EVERY: Duration = Duration::from_millis(500);

/// A process that serves a mount.
#[derive(Debug)]
pub struct Server {
    pid: u32,
    process: OwnedFd,
    folder: PathBuf,
    /// That of the mount.
    device: (u32, u32),
    /// The server's descriptor of the connection.
    descriptor: RawFd,
}

/// The state of a server after its mount was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    Ended,
    /// The file system is mounted elsewhere still: in another namespace, say.
    LivesOn,
    /// It has not ended, and was not seen working for a while.
    Stalled,
}

/// Returns where a process serves a mount of ours, if it does.
pub fn mountpoint_served_by(pid: u32) -> Option<PathBuf> {
    let table = super::mount_table().ok()?;
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let ours = table.into_iter().filter(TableEntry::is_ours);
    let mut served =
        ours.filter(|entry| descriptor_of(&folder, connection(entry.device)).is_some());
    served.next().map(|entry| entry.mountpoint)
}

/// Returns where a mount of ours has this source, if one does.
pub fn mountpoint_of(source: &Path) -> Option<PathBuf> {
    let mut table = super::mount_table().ok()?.into_iter();
    let found = table.find(|entry| entry.is_ours() && entry.source == source);
    found.map(|entry| entry.mountpoint)
}

/// Returns the number of a mount's connection, which is the kernel's number of its device.
pub(super) fn connection((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

impl Server {
    /// Finds the process, other than this one, behind the mount that `unmount` would take for `path`.
    pub fn of(path: &Path) -> Option<Server> {
        let table = super::mount_table().ok()?;
        let entry = find(&table, &resolve(path).ok()?)?;
        let device = entry.device;
        // The kernel refuses looks into a process that has begun to execute a program and cannot go on. A process
        // that meets one waits, so another thread does the looking.
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

    /// Sends what may be the server, the likeliest last.
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
        // Mostly no other needs to be looked into, and a look may hang.
        let mut sent_one = false;
        for folder in ours.into_iter().chain(others) {
            let Some(server) = Server::in_folder(folder, device) else {
                continue;
            };
            // The kernel gives the number of a mount that has ended to the next one, and the server of the first may
            // still be there. It is taken if there is no other.
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

    /// Returns the process of this folder of `/proc`, if it has that mount's connection or one of the same number, and
    /// is not this process.
    fn in_folder(folder: PathBuf, device: (u32, u32)) -> Option<Server> {
        let pid: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        if pid == std::process::id() {
            return None;
        }
        let connection = connection(device);
        descriptor_of(&folder, connection)?;
        let process = Pid::from_raw(pid.cast_signed())?;
        let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
        // It was still the same process when it was opened.
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

    /// Returns whether it runs the program that this process runs, and so ends when its mount does.
    pub fn runs_this_program(&self) -> bool {
        let program = |folder: &Path| {
            let file = fs::metadata(folder.join("exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        let this = program(Path::new("/proc/self"));
        this.is_some() && program(&self.folder) == this
    }

    /// Waits for its end, unless its file system lives on, or it is not seen working for `patience`.
    pub fn wait(&self, lingers: Duration, patience: Duration) -> Afterwards {
        // A process may look at the file system just when it is unmounted.
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

    /// Returns whether it ends in that time.
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

    /// Returns whether the connection lives. Its descriptor says so to a process that may have a copy of it. Otherwise
    /// a mount does that any process has.
    fn is_connected(&self) -> bool {
        match self.connection() {
            Some(is_connected) => is_connected,
            None => !holders_of(self.device).is_empty(),
        }
    }

    /// Returns whether the connection lives, by the server's descriptor. Returns None if the descriptor cannot be had.
    fn connection(&self) -> Option<bool> {
        if descriptor_of(&self.folder, connection(self.device)) != Some(self.descriptor) {
            return None;
        }
        // A copy that outlives the server would keep its connection from ending with it.
        let copy = pidfd_getfd(&self.process, self.descriptor, PidfdGetfdFlags::empty()).ok()?;
        let mut device = [PollFd::new(&copy, PollFlags::empty())];
        poll(&mut device, Some(&Timespec::default())).ok()?;
        Some(!device[0].revents().contains(PollFlags::ERR))
    }

    /// Returns the fields of `/proc/PID/stat` behind the name of the program, which may hold anything.
    fn stat(&self) -> Option<String> {
        let stat = fs::read_to_string(self.folder.join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(fields.to_owned())
    }

    /// Returns the figures that change while the process works: its time of CPUs, and its reads and writes where they
    /// are shown.
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

/// Whether a process that is waited for goes on working, as it does while it commits. One that cannot be looked at is
/// not seen working.
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

    /// Returns whether it is stopped, or has not been seen working for `patience`. To be asked now and then.
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

/// Returns a descriptor of the connection that a process has.
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

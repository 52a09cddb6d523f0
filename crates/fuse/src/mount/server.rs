//! The process behind a mount.
//!
//! When a mount is gone its server still has to let the volume go, locks included. Whoever unmounts to
//! do something else with the volume waits for that. Nothing names the server of a mount directly; but
//! the kernel tells, for each descriptor of `/dev/fuse`, which connection it is of, and the number of the
//! connection is that of the mount's device. Kernels that do not tell, and processes that
//! this user may not look into, just give no server.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::detach::{control_of, find, resolve};
use super::table::{TableEntry, table_of};

/// How long it is looked for a server.
const LOOKS_AT_MOST: Duration = Duration::from_secs(5);
/// Until then a connection whose last mount has gone is gone as well.
const LINGERS_AT_MOST: Duration = Duration::from_secs(1);
/// In the names of processes that serve mounts: the kernel keeps 15 bytes, of `mount.fuse.ubtrfs` too.
const OUR_NAME: &str = "ubtr";

/// A process that serves a mount.
#[derive(Debug)]
pub struct Server {
    process: OwnedFd,
    folder: PathBuf,
    /// That of the mount.
    device: (u32, u32),
    /// What tells the controls of its connection from those of another that gets the same number.
    control: Option<u64>,
}

/// What became of a server after its mount was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    Ended,
    /// The file system is mounted elsewhere still: in another namespace, say.
    LivesOn,
    /// It has not ended in time.
    Ending,
}

/// Where a process serves a mount of ours, if it does.
pub fn mountpoint_served_by(pid: u32) -> Option<PathBuf> {
    let table = super::mount_table().ok()?;
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let ours = table.into_iter().filter(TableEntry::is_ours);
    let mut served = ours.filter(|entry| serves(&folder, connection(entry.device)));
    served.next().map(|entry| entry.mountpoint)
}

/// Where a mount of ours has this source, if one does.
pub fn mountpoint_of(source: &Path) -> Option<PathBuf> {
    let mut table = super::mount_table().ok()?.into_iter();
    let found = table.find(|entry| entry.is_ours() && entry.source == source);
    found.map(|entry| entry.mountpoint)
}

/// The number of a mount's connection, which is the kernel's number of its device.
pub(super) fn connection((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

impl Server {
    /// The process, other than this one, behind the mount that `unmount` would take for `path`.
    pub fn of(path: &Path) -> Option<Server> {
        let table = super::mount_table().ok()?;
        let entry = find(&table, &resolve(path).ok()?)?;
        let device = entry.device;
        // The kernel lets nobody look into a process that has begun to execute a program and cannot go on. Whoever
        // meets one waits, so another thread does the looking.
        let (sender, receiver) = mpsc::channel();
        let looks = thread::Builder::new().spawn(move || sender.send(Server::behind(device)));
        looks.ok()?;
        receiver.recv_timeout(LOOKS_AT_MOST).ok()?
    }

    fn behind(device: (u32, u32)) -> Option<Server> {
        let connection = connection(device);
        let mut folders: Vec<_> = fs::read_dir("/proc")
            .ok()?
            .flatten()
            .map(|process| process.path())
            .collect();
        // Those that are ours by name come first: mostly no other needs to be looked into.
        folders.sort_by_cached_key(|folder| {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            !name.contains(OUR_NAME)
        });
        folders.into_iter().find_map(|folder| {
            let pid: i32 = folder.file_name()?.to_str()?.parse().ok()?;
            if pid as u32 == std::process::id() || !serves(&folder, connection) {
                return None;
            }
            let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // It was still the same process when it was opened.
            serves(&folder, connection).then_some(Server {
                process,
                folder,
                device,
                control: control_inode(device),
            })
        })
    }

    /// Whether it runs the program that this process runs, and so ends when its mount does.
    pub fn runs_this_program(&self) -> bool {
        let program = |folder: &Path| {
            let file = fs::metadata(folder.join("exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        let this = program(Path::new("/proc/self"));
        this.is_some() && program(&self.folder) == this
    }

    /// Waits for its end, as long as there is something to wait for.
    pub fn wait(&self, at_most: Duration) -> Afterwards {
        let until = Instant::now() + at_most;
        // Somebody may look at the file system just when it is unmounted.
        if self.ends_within(at_most.min(LINGERS_AT_MOST)) {
            return Afterwards::Ended;
        }
        if self.is_connected() {
            return Afterwards::LivesOn;
        }
        match self.ends_within(until.saturating_duration_since(Instant::now())) {
            true => Afterwards::Ended,
            false => Afterwards::Ending,
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut process = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut process, timeout.as_ref()).is_ok_and(|ended| ended > 0)
    }

    /// Whether the connection lives, as far as can be told: by the kernel's controls, or by a mount that the server
    /// or this process sees.
    fn is_connected(&self) -> bool {
        if self.control.is_some() {
            return self.control == control_inode(self.device);
        }
        let sees = |table: &Path| {
            table_of(table).is_ok_and(|table| {
                let mut mounts = table.iter();
                mounts.any(|entry| entry.device == self.device && entry.is_ours())
            })
        };
        sees(Path::new("/proc/self")) || sees(&self.folder)
    }
}

/// None where they are not mounted, or the connection is gone.
fn control_inode(device: (u32, u32)) -> Option<u64> {
    let control = fs::metadata(control_of(device)).ok()?;
    Some(control.ino())
}

/// Whether a process has a descriptor of the connection.
fn serves(process: &Path, connection: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let wanted = format!("fuse_connection:\t{connection}");
    descriptors
        .flatten()
        .filter(|descriptor| {
            fs::read_link(descriptor.path()).is_ok_and(|file| file == Path::new("/dev/fuse"))
        })
        .any(|descriptor| {
            let info = process.join("fdinfo").join(descriptor.file_name());
            fs::read_to_string(info).is_ok_and(|info| info.lines().any(|line| line == wanted))
        })
}

//! A mounted file system, from its first use to the end of its last thread.
//!
//! A mount ends with its connection, for any reason. After the last request the services of the mount are ended in
//! reverse order. Threads that wait for the session return after that.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use ubtrfs_device::thread;
use ubtrfs_fs::{FileId, Volume};
use ubtrfs_fuse_server::Connection;

use super::detach::IfBusy;
use super::error::MountError;
use super::live::LiveOptions;
use super::mount_place::MountPlace;
use super::service::MountService;
use super::teardown::{Teardown, Written};
use crate::adapter::{Changes, ControlPoint, KernelPages};
use crate::mount_table::BLOCK_FS_TYPE;
use crate::stats::Stats;

/// The kernel's read-ahead for a sequential reader, if this process may set it: the size of one request. Its default is
/// an eighth of that.
const READ_AHEAD_KIB: u32 = 1024;

/// A mounted file system. Dropping it detaches the mount; users inside keep it until they leave or the process ends.
#[derive(Debug)]
pub struct Session {
    place: Arc<MountPlace>,
    server: Option<JoinHandle<io::Result<()>>>,
    services: Vec<Box<dyn MountService>>,
    fallback: Option<String>,
    pub(super) root: Option<FileId>,
    pub(super) live: LiveOptions,
    changes: Option<Changes>,
    pub(super) control: Option<ControlPoint>,
    pub(super) pages: Option<Arc<KernelPages>>,
    /// The mounted volume, if the file system is a volume.
    pub(super) volume: Option<Weak<Volume>>,
    pub(super) stats: Option<Arc<Stats>>,
}

impl Session {
    pub(super) fn start(
        mountpoint: PathBuf,
        device: OwnedFd,
        connection: Connection,
    ) -> Result<Self, MountError> {
        let place = Arc::new(MountPlace::new(mountpoint, device));
        let served = Arc::clone(&place);
        let fallback = connection.fallback().map(str::to_owned);
        let server = thread::start("ubtrfs-fuse", move || connection.serve(|| served.abort()));
        let session = Self {
            place,
            server: Some(server.map_err(MountError::Threads)?),
            services: Vec::new(),
            fallback,
            root: None,
            live: LiveOptions::default(),
            changes: None,
            control: None,
            pages: None,
            volume: None,
            stats: None,
        };
        session.raise_read_ahead();
        Ok(session)
    }

    /// Adds a running service that ends with the mount.
    pub fn add_service(&mut self, service: impl MountService + 'static) {
        self.services.push(Box::new(service));
    }

    /// Returns the reason why requests use `/dev/fuse`, with advice, unless the user chose it.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Returns the root directory, if a volume is mounted.
    pub fn root(&self) -> Option<FileId> {
        self.root
    }

    /// Returns the options of a mounted volume that a remount changes.
    pub fn live_options(&self) -> &LiveOptions {
        &self.live
    }

    /// Returns major and minor number of the mount's device, as in `st_dev`.
    pub fn device(&self) -> Option<(u32, u32)> {
        let entry = self.place.entry.as_ref();
        entry.map(|entry| entry.device)
    }

    pub(super) fn tell_changes_by(&mut self, changes: Changes) {
        self.changes = Some(changes);
    }

    /// Returns the interface for reporting changes of the volume that bypass this mount, or `None` if it is not a
    /// volume.
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_ref()
    }

    /// Returns the kernel's dirty pages of the mounted volume.
    pub fn kernel_pages(&self) -> Option<&KernelPages> {
        self.pages.as_deref()
    }

    /// Returns the address for commands on the mounted volume.
    pub fn control(&self) -> Option<&ControlPoint> {
        self.control.as_ref()
    }

    /// Returns live figures of the volume that is mounted.
    pub fn stats(&self) -> Option<&Arc<Stats>> {
        self.stats.as_ref()
    }

    pub fn mountpoint(&self) -> &Path {
        &self.place.mountpoint
    }

    /// Unmounts and waits for the last thread. A busy mount stays, and continues to be served.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        self.place.unmount(IfBusy::Refuse)?;
        self.join()
    }

    /// Waits until the file system is unmounted, by any process.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), MountError> {
        let served = match self.server.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(MountError::Connection(error)),
            Some(Err(_)) => Err(MountError::Panicked),
        };
        served.and(self.end_services())
    }

    /// Ends all services; returns the first error.
    fn end_services(&mut self) -> Result<(), MountError> {
        let mut outcome = Ok(());
        while let Some(mut service) = self.services.pop() {
            outcome = outcome.and(service.end());
        }
        outcome
    }

    /// Handles SIGTERM, SIGINT and SIGHUP by unmounting, from now on. A busy mount is detached at once and served until
    /// its last user leaves, and so is a mount that exists in other places, too. All data written so far is then made
    /// durable, as the sender of the signal may kill this process next. A covered mount stays. A further signal with
    /// nothing to unmount ends the process as if it were not handled, once the written data is durable.
    pub fn unmount_on_signals(&self) -> Result<(), MountError> {
        let mut readers = Vec::new();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let (reader, writer) = UnixStream::pair().map_err(MountError::Signals)?;
            signal_hook::low_level::pipe::register(signal, writer).map_err(MountError::Signals)?;
            readers.push((signal, reader));
        }
        let place = Arc::clone(&self.place);
        let written = self.written();
        thread::start("ubtrfs-signals", move || {
            handle_signals(&place, &written, &mut readers)
        })
        .map_err(MountError::Threads)?;
        Ok(())
    }

    fn written(&self) -> Written {
        Written {
            pages: self.pages.as_ref().map(Arc::downgrade).unwrap_or_default(),
            volume: self.volume.clone().unwrap_or_default(),
        }
    }

    /// Returns the interface for a process that unmounts.
    pub fn teardown(&self) -> Teardown {
        Teardown::new(Arc::clone(&self.place), self.written())
    }

    /// Raises the read-ahead of the mount. Only root may; a mount works without it.
    fn raise_read_ahead(&self) {
        let Some(entry) = &self.place.entry else {
            return;
        };
        let (major, minor) = entry.device;
        // A block device has a read-ahead of its own as well.
        let suffix = match entry.fs_type.as_str() {
            BLOCK_FS_TYPE => "-fuseblk",
            _ => "",
        };
        let path = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
        let raised = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(READ_AHEAD_KIB.to_string().as_bytes()));
        if let Err(error) = raised {
            tracing::debug!(%path, %error, "read-ahead stays as it is");
        }
    }
}

fn handle_signals(place: &MountPlace, written: &Written, readers: &mut [(i32, UnixStream)]) {
    // Requests would wake all threads that poll the connection, so it is polled only while its end is expected.
    let mut end = None;
    while let Some(signal) = next_signal(readers, end) {
        let has_left = place.leave();
        if !has_left && end.is_some() {
            return end_process(signal, written, readers);
        }
        if has_left
            && place.is_mounted()
            && let Err(error) = written.make_durable_then(|| ())
        {
            tracing::error!(%error, "the last writes become durable with the next commit");
        }
        end = Some(&place.device);
    }
}

/// Makes written data durable, and ends this process. A further signal does not wait for that.
fn end_process(signal: i32, written: &Written, readers: &mut [(i32, UnixStream)]) {
    let die = |signal| {
        if let Err(error) = signal_hook::low_level::emulate_default_handler(signal) {
            tracing::error!(%error, signal, "cannot end");
        }
    };
    match written.make_durable_then(move || die(signal)) {
        Err(_) => die(signal),
        Ok(()) => {
            if let Some(signal) = next_signal(readers, None) {
                die(signal);
            }
        }
    }
}

/// Waits for a signal, or for the `end` of a connection. Returns `None` if the connection has ended.
fn next_signal(readers: &mut [(i32, UnixStream)], end: Option<&OwnedFd>) -> Option<i32> {
    loop {
        let sockets = readers.iter().map(|(_, reader)| reader.as_fd());
        let sockets = sockets.map(|reader| PollFd::from_borrowed_fd(reader, PollFlags::IN));
        let device = end.map(|device| PollFd::new(device, PollFlags::empty()));
        let mut all: Vec<_> = sockets.chain(device).collect();
        if poll(&mut all, None).is_err() {
            continue;
        }
        let heard = all.iter().position(|one| !one.revents().is_empty())?;
        drop(all);
        // The connection is the only descriptor after the signals.
        let (signal, reader) = readers.get_mut(heard)?;
        if reader.read(&mut [0]).is_ok_and(|len| len > 0) {
            return Some(*signal);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.server.is_none() {
            return;
        }
        if let Err(error) = self.place.unmount(IfBusy::Detach) {
            tracing::warn!(%error, "left mounted");
        }
    }
}

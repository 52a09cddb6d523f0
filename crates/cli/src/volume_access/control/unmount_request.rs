//! Unmounting in agreement with the server, which reports whether the file system lives on elsewhere, and
//! whether everything is durable.
//!
//! The server is contacted before the unmount, as its address is read from the mount. Without an answer
//! (another user's mount, a killed server, an older version) umount relies on `/proc`.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::bail;
use rustix::process::geteuid;
use ubtrfs_device::thread;
use ubtrfs_fuse::mount::{Server, TableEntry, Work};

use super::client::reach;
use super::mounted::Mounted;
use super::protocol::{self, DURABLE, READY, Request, UNMOUNTED};

/// The longest wait for the server's answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// The time for a process to end after its sockets are closed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A connection to a server that has agreed to the unmount.
#[derive(Debug)]
pub(crate) struct UnmountRequest(UnixStream);

/// The state of the file system after an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// Its server has ended.
    Ended,
    /// It is mounted elsewhere or in use, and all written data is durable.
    LivesOn,
    /// Some written data could not be made durable.
    NotDurable,
    /// The server neither answered nor ended, and showed no activity for a while.
    Stalled,
}

/// The answer of a server to the announcement of an unmount.
#[derive(Debug)]
pub(crate) enum UnmountAnswer {
    Agrees(UnmountRequest),
    /// There is no server, it has another version, or it does not accept the caller.
    None,
    /// It does not answer. Its mount cannot be unmounted regularly while a request is pending.
    Hangs,
}

impl UnmountRequest {
    pub(crate) fn begin(entry: &TableEntry) -> UnmountAnswer {
        let mount = Mounted {
            device: entry.device,
            owner: entry.owner().unwrap_or(0),
            is_read_only: entry.refuses_writes(),
            mountpoint: entry.mountpoint.clone(),
            place: entry.mountpoint.clone(),
            path: Vec::new(),
        };
        let caller = geteuid();
        if !caller.is_root() && caller.as_raw() != mount.owner {
            return UnmountAnswer::None;
        }
        // A hanging server does not answer requests for the mount's attribute either, and those have no
        // timeout.
        let (sender, receiver) = mpsc::channel();
        let asks = thread::start("ubtrfs-unmount", move || {
            sender.send(UnmountRequest::send(&mount))
        });
        if asks.is_err() {
            return UnmountAnswer::None;
        }
        match receiver.recv_timeout(ANSWERS_WITHIN) {
            Ok(Ok(request)) => UnmountAnswer::Agrees(request),
            Ok(Err(error)) => {
                tracing::debug!(error = format!("{error:#}"), "cannot ask the server");
                UnmountAnswer::None
            }
            Err(_) => UnmountAnswer::Hangs,
        }
    }

    fn send(mount: &Mounted) -> anyhow::Result<UnmountRequest> {
        let socket = reach(mount)?;
        let null = File::options().write(true).open("/dev/null")?;
        let sent = Request::unmount(mount.device).send(&socket, &null, &null, None);
        match protocol::exit_code(&socket, &mut None) {
            Ok(READY) => Ok(UnmountRequest(socket)),
            Ok(code) => bail!("it answers with code {code}"),
            Err(error) => {
                sent?;
                Err(error.into())
            }
        }
    }

    /// Reports the unmount, and waits for the server's answer or end. A known `server` is waited for while it
    /// is active, an unknown one for at most `patience`.
    pub(crate) fn unmounted(self, server: Option<&Server>, patience: Duration) -> Unmounted {
        let UnmountRequest(mut socket) = self;
        // If it has ended already, that counts as the answer.
        let _ = socket.write_all(&[UNMOUNTED]);
        let _ = socket.set_read_timeout(Some(LOOKS_EVERY));
        let mut work = Work::of(server);
        let mut answer = [0];
        loop {
            let waits = [
                ErrorKind::WouldBlock,
                ErrorKind::TimedOut,
                ErrorKind::Interrupted,
            ];
            match socket.read(&mut answer) {
                Err(error) if waits.contains(&error.kind()) => {}
                Ok(1) => {
                    return if answer == [DURABLE] {
                        Unmounted::LivesOn
                    } else {
                        Unmounted::NotDurable
                    };
                }
                _ => break,
            }
            if work.is_stalled(patience) {
                return Unmounted::Stalled;
            }
        }
        if server.is_none_or(|server| server.ends_within(ENDS_WITHIN)) {
            Unmounted::Ended
        } else {
            Unmounted::Stalled
        }
    }
}

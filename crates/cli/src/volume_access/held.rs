//! Volumes that another process uses: the time that a command waits, and the final error.
//!
//! Concurrent commands on one image (`make -j`) hold it only for short times, so each waits for the others. A
//! mount holds it indefinitely: a command waits for it only on request.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::anyhow;
use ubtrfs_device::{DeviceError, Holder, clock};
use ubtrfs_fuse::mount::{mount_table, mountpoint_served_by};

use crate::presentation::quoting::Escaped;
use crate::volume_access::reason::Reason;

/// The default wait for other commands.
pub(crate) const FOR_COMMANDS: Duration = Duration::from_secs(10);
/// The pause between tries. Opening itself retries the lock for a second.
const PAUSE: Duration = Duration::from_millis(50);

/// The time set by `--wait`.
static ASKED: OnceLock<Duration> = OnceLock::new();

/// Sets the time that this process waits for other users of a volume.
pub(crate) fn wait_for(seconds: Option<f64>) {
    let limit = seconds.map(Duration::try_from_secs_f64);
    let limit = limit.unwrap_or(Ok(Duration::MAX));
    let _ = ASKED.set(limit.unwrap_or(Duration::MAX));
}

/// Returns the time set by `--wait`, or None.
pub(crate) fn asked() -> Option<Duration> {
    ASKED.get().copied()
}

/// Calls `open` repeatedly while another command uses the volume, for at most `limit`.
pub(crate) fn when_free<T>(
    limit: Duration,
    mut open: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let start = clock::now();
    let mut is_reported = false;
    loop {
        let error = match open() {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let Some((path, holder)) = holder_of(&error) else {
            return Err(error);
        };
        let limit = match (ASKED.get(), is_command(holder)) {
            (Some(asked), _) => *asked,
            (None, true) => limit,
            (None, false) => Duration::ZERO,
        };
        if clock::now() - start >= limit {
            return Err(error);
        }
        if !is_reported && io::stderr().is_terminal() {
            eprintln!("Waiting: {} is in use ({holder})", path.display());
        }
        is_reported = true;
        clock::sleep(PAUSE);
    }
}

/// Adds the mount point to the error that another process uses the volume.
pub(crate) fn name_the_mount(error: anyhow::Error) -> anyhow::Error {
    let Some((path, holder)) = holder_of(&error) else {
        return error;
    };
    let shown = Escaped::of(path);
    match (mountpoint_of(path, holder), holder) {
        (Some(mountpoint), Holder::Lock { pid: Some(pid) }) => anyhow!(
            "'{shown}' is mounted on '{}' (process {pid}): use the paths there, or unmount it",
            mountpoint.display()
        ),
        (Some(mountpoint), _) => anyhow!(
            "'{shown}' is mounted on '{}': use the paths there, or unmount it",
            mountpoint.display()
        ),
        (None, Holder::Lock { pid: Some(_) }) => {
            error.context("another command has the volume open (--wait waits longer)")
        }
        _ => error,
    }
}

fn holder_of(error: &anyhow::Error) -> Option<(&Path, &Holder)> {
    error.chain().find_map(|cause| {
        if let Some(reason) = cause.downcast_ref::<Reason>() {
            return reason.holder();
        }
        let device = match cause.downcast_ref() {
            Some(ubtrfs_fs::Error::Device(device)) => Some(device),
            Some(_) => None,
            None => cause.downcast_ref::<DeviceError>(),
        };
        match device {
            Some(DeviceError::InUse { path, holder }) => Some((path.as_path(), holder)),
            _ => None,
        }
    })
}

/// Returns whether the holder is a command, which ends by itself.
fn is_command(holder: &Holder) -> bool {
    match holder {
        Holder::Lock { pid: Some(pid) } => mountpoint_served_by(*pid).is_none(),
        Holder::Lock { pid: None } => true,
        Holder::ThisProcess | Holder::Loop(_) | Holder::Kernel => false,
    }
}

fn mountpoint_of(path: &Path, holder: &Holder) -> Option<PathBuf> {
    let source = match holder {
        Holder::Lock { pid } => return mountpoint_served_by((*pid)?),
        Holder::ThisProcess => return None,
        Holder::Loop(name) => Path::new("/dev").join(name.trim_start_matches("/dev/")),
        Holder::Kernel => path.canonicalize().ok()?,
    };
    let mut table = mount_table().ok()?.into_iter();
    let found = table.find(|entry| entry.source == source);
    found.map(|entry| entry.mountpoint)
}

//! Ioctls for the replacement of a device.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::bail;
use rustix::io::Errno;
use ubtrfs_format::item::DevReplaceItem;
use ubtrfs_fuse::ioctl_args::{self as args, DevReplace, DevReplaceStart, DevReplaceStatus};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Asked;

/// The commands of the ioctl.
const START: u64 = 0;
const STATUS: u64 = 1;
const CANCEL: u64 = 2;
/// Read the source only where no other mirror is good.
const AVOID_SOURCE: u64 = 1;
/// The result if no replacement is in progress.
const NOT_STARTED: u64 = 1;

/// The state of the last replacement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplaceState {
    state: u64,
    /// In thousandths.
    pub(crate) progress: u64,
    pub(crate) started: i64,
    pub(crate) stopped: i64,
    pub(crate) write_errors: u64,
    pub(crate) uncorrectable: u64,
}

impl ReplaceState {
    /// Returns the state in an item. A replacement that was in progress is suspended.
    pub(crate) fn of(item: &DevReplaceItem) -> ReplaceState {
        const STARTED: u64 = 1;
        const SUSPENDED: u64 = 4;
        let state = match item.replace_state.get() {
            STARTED => SUSPENDED,
            state => state,
        };
        ReplaceState {
            state,
            progress: 0,
            started: item.time_started.get() as i64,
            stopped: item.time_stopped.get() as i64,
            write_errors: item.num_write_errors.get(),
            uncorrectable: item.num_uncorrectable_read_errors.get(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            1 => "started",
            2 => "finished",
            3 => "canceled",
            4 => "suspended",
            _ => "never started",
        }
    }
}

impl Asked {
    /// Replaces a device. Returns when the copy is complete.
    pub(crate) fn replace_device(
        &self,
        devid: u64,
        target: &Path,
        prefer_mirrors: bool,
    ) -> anyhow::Result<()> {
        let mut start = DevReplaceStart::new_zeroed();
        start.srcdevid.set(devid);
        start
            .mode
            .set(if prefer_mirrors { AVOID_SOURCE } else { 0 });
        let name = target.as_os_str().as_bytes();
        let room = start.tgtdev_name.len() - 1;
        match start.tgtdev_name[..room].get_mut(..name.len()) {
            Some(field) => field.copy_from_slice(name),
            None => return Err(Errno::NAMETOOLONG.into()),
        }
        let mut request = DevReplace::new_zeroed();
        request.cmd.set(START);
        start.write_to_prefix(&mut request.parameters).ok();
        self.ask::<{ args::DEV_REPLACE }, _>(&mut request)?;
        match request.result.get() {
            0 => Ok(()),
            2 => bail!("already started"),
            3 => bail!("scrub is in progress"),
            result => bail!("result {result}"),
        }
    }

    pub(crate) fn replace_state(&self) -> Result<ReplaceState, Errno> {
        let mut request = DevReplace::new_zeroed();
        request.cmd.set(STATUS);
        self.ask::<{ args::DEV_REPLACE }, _>(&mut request)?;
        let found = DevReplaceStatus::read_from_prefix(&request.parameters);
        let (found, _) = found.map_err(|_| Errno::INVAL)?;
        Ok(ReplaceState {
            state: found.replace_state.get(),
            progress: found.progress_1000.get(),
            started: found.time_started.get() as i64,
            stopped: found.time_stopped.get() as i64,
            write_errors: found.num_write_errors.get(),
            uncorrectable: found.num_uncorrectable_read_errors.get(),
        })
    }

    /// Cancels a replacement. Returns false if none is in progress.
    pub(crate) fn cancel_replace(&self) -> Result<bool, Errno> {
        let mut request = DevReplace::new_zeroed();
        request.cmd.set(CANCEL);
        self.ask::<{ args::DEV_REPLACE }, _>(&mut request)?;
        Ok(request.result.get() != NOT_STARTED)
    }
}

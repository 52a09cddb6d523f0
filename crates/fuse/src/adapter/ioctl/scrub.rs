//! The ioctls of scrub. One returns at the end of the scrub of a device; others show its counts, and cancel it.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_device::ScrubCounts;
use ubtrfs_device::progress::Event;
use ubtrfs_format::ids::DevId;
use ubtrfs_fuse_server::request::{Errno, Result};
use ubtrfs_maintenance::ScrubError;
use ubtrfs_maintenance::scrub::{ScrubOptions, scrub_volume};

use super::super::errno::errno;
use super::super::source::Source;
use super::args::{self, ScrubArgs};
use super::{Call, refused};
use crate::caller::{EndingCaller, administer_mount};

impl<S: Source> Call<'_, S> {
    /// Scrubs a device. Returns the counts, and whether the scrub was cancelled. Takes long. Ends early if a signal ends
    /// the caller.
    pub(super) fn scrub(&self, mut scrub: ScrubArgs) -> Result<(ScrubArgs, bool)> {
        administer_mount(self.rights()).map_err(refused)?;
        if scrub.flags.get() & !args::SCRUB_READONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let read_only = scrub.flags.get() & args::SCRUB_READONLY != 0;
        if !read_only {
            self.must_be_writable()?;
        }
        let devid = scrub.devid.get();
        if self.volume.pool().device(DevId(devid)).is_none() {
            return Err(Errno::NODEV);
        }
        let running = self.adapter.scrubs.begin(devid);
        let running = running.ok_or(Errno::from(rustix::io::Errno::INPROGRESS))?;
        let mut before = ScrubCounts::default();
        before.last_physical = scrub.start.get();
        let options = ScrubOptions {
            read_only,
            devices: Some(vec![devid]),
            resumed: [(devid, before)].into(),
            bytes_per_second: scrub.limit.get(),
            control: Arc::clone(&running.control),
            ..ScrubOptions::default()
        };
        let mut caller = EndingCaller::new(self.context.pid);
        let mut goes_on = |_: &Event<'_>| {
            let has_ended = self.volume.is_writable() && self.volume.is_closed();
            if has_ended || caller.is_ending() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let report = scrub_volume(self.volume, &options, &mut goes_on).map_err(errno_of)?;
        scrub.progress = report.totals().to_kernel().map(Into::into);
        Ok((scrub, report.is_cancelled))
    }

    /// Returns the counts of the running scrub of a device.
    pub(super) fn scrub_progress(&self, mut scrub: ScrubArgs) -> Result<ScrubArgs> {
        administer_mount(self.rights()).map_err(refused)?;
        let devid = scrub.devid.get();
        let Some(control) = self.adapter.scrubs.find(devid) else {
            let is_known = self.volume.pool().device(DevId(devid)).is_some();
            return Err(if is_known {
                rustix::io::Errno::NOTCONN.into()
            } else {
                Errno::NODEV
            });
        };
        let counts = control.devices().first().map(|device| device.counts);
        scrub.progress = counts.unwrap_or_default().to_kernel().map(Into::into);
        Ok(scrub)
    }

    /// Cancels the scrubs of all devices.
    pub(super) fn cancel_scrub(&self) -> Result<usize> {
        administer_mount(self.rights()).map_err(refused)?;
        if self.adapter.scrubs.cancel() {
            Ok(0)
        } else {
            Err(rustix::io::Errno::NOTCONN.into())
        }
    }
}

fn errno_of(error: ScrubError) -> Errno {
    match error {
        ScrubError::Engine(error) => errno(error),
        other => other.errno().into(),
    }
}

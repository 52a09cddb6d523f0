//! The scrub of one device of a mounted volume.

use rustix::io::Errno;
use ubtrfs::ScrubCounts;
use ubtrfs_fuse::ioctl_args::{self as args, ScrubArgs};
use zerocopy::FromZeros;

use super::Asked;

impl Asked {
    /// Scrubs a device from an offset to its end. Also returns the counts, even after an error.
    pub(crate) fn scrub(
        &self,
        devid: u64,
        start: u64,
        read_only: bool,
        bytes_per_second: u64,
    ) -> (Result<(), Errno>, ScrubCounts) {
        let mut scrub = ScrubArgs::new_zeroed();
        scrub.devid.set(devid);
        scrub.start.set(start);
        scrub.end.set(u64::MAX);
        scrub.limit.set(bytes_per_second);
        if read_only {
            scrub.flags.set(args::SCRUB_READONLY);
        }
        let done = self.ask::<{ args::SCRUB }, _>(&mut scrub);
        (done, counts_of(&scrub))
    }

    /// Returns the counts of a running scrub.
    pub(crate) fn scrub_progress(&self, devid: u64) -> Result<ScrubCounts, Errno> {
        let mut scrub = ScrubArgs::new_zeroed();
        scrub.devid.set(devid);
        self.ask::<{ args::SCRUB_PROGRESS }, _>(&mut scrub)?;
        Ok(counts_of(&scrub))
    }

    /// Ends the scrubs of all devices.
    pub(crate) fn cancel_scrub(&self) -> Result<(), Errno> {
        self.ask::<{ args::SCRUB_CANCEL }, _>(&mut ())
    }
}

fn counts_of(scrub: &ScrubArgs) -> ScrubCounts {
    ScrubCounts::of_kernel(scrub.progress.map(|count| count.get()))
}

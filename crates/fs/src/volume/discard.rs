//! Discarding free space of an open volume: mode, limits, statistics, and trim.

use ubtrfs_device::nonblocking;
use ubtrfs_storage::discard::{DiscardLimits, DiscardMode, DiscardStats, TrimRequest};

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Sets the discard mode. None selects `Async` if a device supports discards. Waits for a background
    /// discard in progress. Space that waits for its discard stays queued.
    ///
    /// Errors: read-only volume.
    pub fn set_discard(&self, mode: Option<DiscardMode>) -> Result<()> {
        nonblocking::check()?;
        self.inodes.transactions()?.discard.set_mode(mode);
        Ok(())
    }

    /// Returns the discard mode. It is `None` on a read-only volume.
    pub fn discard_mode(&self) -> DiscardMode {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardMode::None, |manager| manager.discard.mode())
    }

    /// Returns whether a device of a writable volume supports discards, as far as known.
    pub fn can_discard(&self) -> bool {
        let manager = self.inodes.transactions();
        manager.is_ok_and(|manager| manager.discard.is_possible())
    }

    /// Returns the limits of the background discard. On a read-only volume, returns the defaults.
    pub fn discard_limits(&self) -> DiscardLimits {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardLimits::default(), |manager| manager.discard.limits())
    }

    /// Sets the limits of the background discard, effective with its next discard.
    ///
    /// Errors: read-only volume.
    pub fn set_discard_limits(&self, limits: DiscardLimits) -> Result<()> {
        nonblocking::check()?;
        self.inodes.transactions()?.discard.set_limits(limits);
        Ok(())
    }

    /// Returns the waiting and the discarded bytes since the volume was opened. All are 0 on a read-only
    /// volume.
    pub fn discard_stats(&self) -> DiscardStats {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardStats::default(), |manager| manager.discard.stats())
    }

    /// Commits, and discards free space, like FITRIM of the kernel's btrfs.
    ///
    /// First it discards free runs of at least `min_bytes` in all block groups, at logical addresses from
    /// `start` on. A `len` of `u64::MAX` means no end. Then it discards unallocated space of all devices,
    /// except where it was discarded since the volume was opened. Returns the discarded bytes, counted for
    /// each copy.
    ///
    /// `keep_going` is called before each region. If it returns false, the trim ends and returns the bytes so
    /// far. No lock is held during the trim that an operation, a group or a commit needs.
    ///
    /// Errors: read-only or closed volume; no device supports discards; less than a sector, or a range beyond
    /// all addresses. As `sync`. The first error of a device, after everything else was discarded.
    pub fn trim(
        &self,
        start: u64,
        len: u64,
        min_bytes: u64,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<u64> {
        nonblocking::check()?;
        let manager = self.inodes.transactions()?;
        manager.check_alive()?;
        if !manager.discard.is_possible() {
            return Err(Error::NoDiscard);
        }
        if len < u64::from(self.superblock().sectorsize.get()) {
            return Err(Error::Invalid("length"));
        }
        let end = match len {
            // As in the kernel.
            u64::MAX if start < u64::MAX => u64::MAX,
            len => start.checked_add(len).ok_or(Error::Invalid("range"))?,
        };
        if !manager.cleaner.is_quiesced() {
            // Leave the gate after the commit: `keep_going` may wait for a group.
            let _entered = self.enter();
            self.sync()?;
        }
        manager.wait_for_readers();
        let request = TrimRequest {
            range: start..end,
            min_bytes,
        };
        Ok(manager.discard.trim(&request, keep_going)?)
    }
}

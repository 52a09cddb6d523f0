//! Discarding free space of an open volume: when, how fast, and now.

use ubtrfs_device::nonblocking;
use ubtrfs_transaction::discard::{DiscardLimits, DiscardMode, DiscardStats, TrimRequest};

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Changes when freed space is discarded, from now on; None is `Async` where a device takes discards. Waits for a
    /// discard of the background under way. Nothing of what waits is forgotten.
    ///
    /// Errors: read-only volume.
    pub fn set_discard(&self, mode: Option<DiscardMode>) -> Result<()> {
        nonblocking::check()?;
        self.inodes.transactions()?.discard.set_mode(mode);
        Ok(())
    }

    /// Returns when freed space is discarded. `None` of a volume that is only read.
    pub fn discard_mode(&self) -> DiscardMode {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardMode::None, |manager| manager.discard.mode())
    }

    /// Returns whether a device of a writable volume takes discards, as far as is known.
    pub fn can_discard(&self) -> bool {
        let manager = self.inodes.transactions();
        manager.is_ok_and(|manager| manager.discard.is_possible())
    }

    /// Returns the limits of the background discard. On a volume that is only read, they are the usual ones.
    pub fn discard_limits(&self) -> DiscardLimits {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardLimits::default(), |manager| manager.discard.limits())
    }

    /// Changes the limits of the background, from its next discard on.
    ///
    /// Errors: read-only volume.
    pub fn set_discard_limits(&self, limits: DiscardLimits) -> Result<()> {
        nonblocking::check()?;
        self.inodes.transactions()?.discard.set_limits(limits);
        Ok(())
    }

    /// Returns the bytes that wait and that were discarded since the volume was opened. All are 0 on a volume that is
    /// only read.
    pub fn discard_stats(&self) -> DiscardStats {
        let manager = self.inodes.transactions();
        manager.map_or(DiscardStats::default(), |manager| manager.discard.stats())
    }

    /// Commits, and discards what is free, as FITRIM of the kernel's btrfs does.
    ///
    /// First come free runs of at least `min_bytes` in logical addresses from `start` on, of all block groups. `len` of
    /// `u64::MAX` is without end. Then comes unallocated space of all devices, but for what was discarded since the volume
    /// was opened. Returns the bytes that devices were told of, each copy's counted.
    ///
    /// `goes_on` is asked before each region, and ends the trim with false: what was discarded so far is returned. No lock
    /// is held meanwhile that an operation, a group or a commit needs.
    ///
    /// Errors: read-only or closed volume; no device takes discards; less than a sector, or a range beyond all addresses. As `sync`.
    /// The first error of a device, after all else was discarded.
    pub fn trim(
        &self,
        start: u64,
        len: u64,
        min_bytes: u64,
        goes_on: &mut dyn FnMut() -> bool,
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
        if !manager.is_quiesced() {
            // Only for the commit: `goes_on` may wait for a group.
            let _entered = self.enter();
            self.sync()?;
        }
        manager.wait_for_readers();
        let request = TrimRequest {
            range: start..end,
            min_bytes,
        };
        Ok(manager.discard.trim(&request, goes_on)?)
    }
}

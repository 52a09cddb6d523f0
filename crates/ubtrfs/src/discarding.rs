//! Discarding: devices are told of space that is not in use.

use crate::error::{Naming, Result};
use crate::volume::Volume;

/// A part of the free space, for [`Volume::trim_with`]. All of it if nothing is said.
///
/// ```
/// use ubtrfs::{TrimOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(1 << 30)?;
/// let options = TrimOptions::new().min_bytes(1 << 20);
/// let mut at_end = 0;
/// let trimmed = volume.trim_with(&options, |bytes| {
///     at_end = bytes;
///     true
/// })?;
/// assert!(at_end > 0 && at_end <= trimmed);
/// // It ends at once.
/// assert_eq!(volume.trim_with(&options, |_| false)?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TrimOptions {
    start: u64,
    len: Option<u64>,
    min_bytes: u64,
}

impl TrimOptions {
    /// Creates options that trim all free space.
    pub fn new() -> TrimOptions {
        TrimOptions::default()
    }

    /// Begins at this address within the volume. Unallocated space has none, and is trimmed in any case.
    #[must_use]
    pub fn start(mut self, start: u64) -> TrimOptions {
        self.start = start;
        self
    }

    /// Goes on for so many bytes of addresses; to the end by default.
    #[must_use]
    pub fn len(mut self, len: u64) -> TrimOptions {
        self.len = Some(len);
        self
    }

    /// Skips free extents that are shorter than this.
    #[must_use]
    pub fn min_bytes(mut self, min_bytes: u64) -> TrimOptions {
        self.min_bytes = min_bytes;
        self
    }
}

/// How fast freed space is discarded in the background.
///
/// ```
/// use ubtrfs::{DiscardLimits, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let limits = DiscardLimits {
///     kib_per_second: 50 << 10,
///     ..volume.discard_limits()
/// };
/// volume.set_discard_limits(limits)?;
/// assert_eq!(volume.discard_limits(), limits);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimits {
    /// Discards a second; with 0, what waits is spread over six hours.
    pub discards_per_second: u32,
    /// KiB a second; 0 is no limit.
    pub kib_per_second: u32,
    /// The bytes of one discard; 0 is no limit.
    pub max_bytes: u64,
}

/// The limits of a volume for which none were set.
impl Default for DiscardLimits {
    fn default() -> DiscardLimits {
        DiscardLimits::of(ubtrfs_engine::DiscardLimits::default())
    }
}

impl DiscardLimits {
    fn of(limits: ubtrfs_engine::DiscardLimits) -> DiscardLimits {
        DiscardLimits {
            discards_per_second: limits.iops_limit,
            kib_per_second: limits.kbps_limit,
            max_bytes: limits.max_discard_size,
        }
    }
}

impl Volume {
    /// Tells the devices of all space that is not in use, so that images become smaller and SSDs faster. Commits before.
    /// Returns the bytes that were told of.
    ///
    /// # Errors
    ///
    /// No device takes that (`Unsupported`); those of [`Volume::sync`].
    pub fn trim(&self) -> Result<u64> {
        let sector = u64::from(self.engine().superblock().sectorsize.get());
        self.trim_with(&TrimOptions::new().min_bytes(sector), |_| true)
    }

    /// Tells the devices of a part of the space that is not in use, as [`Volume::trim`]. [`TrimOptions`] has an example.
    ///
    /// `goes_on` is called with the bytes so far before each region, and ends the trim with false. No operation
    /// and no group waits for it.
    ///
    /// # Errors
    ///
    /// As [`Volume::trim`]. The range is less than a sector, or goes beyond all addresses (`InvalidInput`). The first error of
    /// a device, after all else was trimmed.
    pub fn trim_with(
        &self,
        options: &TrimOptions,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        let engine = self.engine();
        let before = engine.discard_stats().trim_bytes;
        let len = options.len.unwrap_or(u64::MAX);
        let mut goes_on = || {
            let trimmed = engine.discard_stats().trim_bytes;
            goes_on(trimmed.saturating_sub(before))
        };
        let trimmed = engine.trim(options.start, len, options.min_bytes, &mut goes_on);
        trimmed.naming_alone("trim the volume")
    }

    /// Returns the limits of discards in the background, which [`Builder`](crate::Builder) has turned on or off.
    pub fn discard_limits(&self) -> DiscardLimits {
        DiscardLimits::of(self.engine().discard_limits())
    }

    /// Sets the limits of discards in the background, from the next one on and until the volume is closed.
    ///
    /// # Errors
    ///
    /// The volume is read-only (`ReadOnlyFilesystem`).
    pub fn set_discard_limits(&self, limits: DiscardLimits) -> Result<()> {
        let limits = ubtrfs_engine::DiscardLimits {
            iops_limit: limits.discards_per_second,
            kbps_limit: limits.kib_per_second,
            max_discard_size: limits.max_bytes,
        };
        let set = self.engine().set_discard_limits(limits);
        set.naming_alone("set the limits of discards")
    }
}

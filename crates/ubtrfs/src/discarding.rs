//! Discarding unused space on devices.

use ubtrfs_device::progress::{Cancelled, Progress, Watch};

use crate::error::{Cause, Naming, Result};
use crate::volume::Volume;

/// A part of the free space, for [`Volume::trim`]. The default is all of it.
///
/// ```
/// use std::io::ErrorKind;
/// use std::ops::ControlFlow;
/// use ubtrfs::{Event, TrimOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(1 << 30)?;
/// let options = TrimOptions::new().min_bytes(1 << 20);
/// let mut reported = 0;
/// let trimmed = volume.trim(&options, &mut |event: &Event<'_>| {
///     if let Event::Advance { bytes } = event {
///         reported += bytes;
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert!(reported > 0 && reported <= trimmed);
/// let cancel = &mut |_: &Event<'_>| ControlFlow::Break(());
/// assert_eq!(volume.trim(&options, cancel).unwrap_err().kind(), ErrorKind::Interrupted);
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

    /// Sets the start address within the volume. Unallocated space has no address, and is always trimmed.
    #[must_use]
    pub fn start(mut self, start: u64) -> TrimOptions {
        self.start = start;
        self
    }

    /// Sets the length of the address range in bytes. By default it extends to the end.
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

/// The rate limits of background discards.
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
    /// Discards per second; with 0, the backlog is spread over six hours.
    pub discards_per_second: u32,
    /// KiB per second; 0 means no limit.
    pub kib_per_second: u32,
    /// The maximum size of a discard in bytes; 0 means no limit.
    pub max_bytes: u64,
}

/// The limits of a volume without settings.
impl Default for DiscardLimits {
    fn default() -> DiscardLimits {
        DiscardLimits::of(ubtrfs_fs::DiscardLimits::default())
    }
}

impl DiscardLimits {
    fn of(limits: ubtrfs_fs::DiscardLimits) -> DiscardLimits {
        DiscardLimits {
            discards_per_second: limits.iops_limit,
            kib_per_second: limits.kbps_limit,
            max_bytes: limits.max_discard_size,
        }
    }
}

impl Volume {
    /// Discards unused space on the devices, so that images become smaller and SSDs faster. Commits first. Returns the
    /// number of discarded bytes. [`TrimOptions`] has an example.
    ///
    /// The discarded bytes are reported to `progress` before each region. No operation and no group waits for it.
    ///
    /// # Errors
    ///
    /// - no device supports discards (`Unsupported`), or the errors of [`Volume::sync`]
    /// - the range is shorter than a sector, or beyond all addresses (`InvalidInput`)
    /// - the first error of a device, after everything else was trimmed
    /// - `progress` cancelled it (`Interrupted`)
    pub fn trim(&self, options: &TrimOptions, progress: &mut dyn Progress) -> Result<u64> {
        let engine = self.engine();
        let before = engine.discard_stats().trim_bytes;
        let len = options.len.unwrap_or(u64::MAX);
        let mut watch = Watch::new(progress);
        let mut reported = 0;
        let mut goes_on = || {
            let trimmed = engine.discard_stats().trim_bytes.saturating_sub(before);
            let bytes = trimmed - reported;
            reported = trimmed;
            watch.advance(bytes).is_ok()
        };
        let trimmed = engine.trim(options.start, len, options.min_bytes, &mut goes_on);
        let trimmed = if watch.is_cancelled() {
            Err(Cancelled.into())
        } else {
            trimmed.map_err(Cause::from)
        };
        trimmed.naming_alone("trim the volume")
    }

    /// Returns the limits of background discards, which [`Builder`](crate::Builder) turns on or off.
    pub fn discard_limits(&self) -> DiscardLimits {
        DiscardLimits::of(self.engine().discard_limits())
    }

    /// Sets the limits of background discards, from the next discard until the volume is closed.
    ///
    /// # Errors
    ///
    /// The volume is read-only (`ReadOnlyFilesystem`).
    pub fn set_discard_limits(&self, limits: DiscardLimits) -> Result<()> {
        let limits = ubtrfs_fs::DiscardLimits {
            iops_limit: limits.discards_per_second,
            kbps_limit: limits.kib_per_second,
            max_discard_size: limits.max_bytes,
        };
        let set = self.engine().set_discard_limits(limits);
        set.naming_alone("set the limits of discards")
    }
}

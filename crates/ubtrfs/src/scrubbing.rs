//! Scrub: verifying everything that a volume stores, and repairing it from other copies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_device::progress::Progress;
use ubtrfs_device::{BlockDevice, DeviceName};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_maintenance::scrub::{OfflineOptions, OfflineScrub, scrub_volume};

use crate::error::{Naming, Result};
use crate::volume::Volume;

/// A damaged range in a [`ScrubReport`].
pub use ubtrfs_maintenance::scrub::Damage as ScrubDamage;

/// The kind of content of a [`ScrubDamage`].
pub use ubtrfs_maintenance::scrub::DamageKind;

/// A file with damaged data, in a [`ScrubReport`].
pub use ubtrfs_maintenance::scrub::DamagedFile;

/// A range of a [`DamagedFile`].
pub use ubtrfs_maintenance::scrub::DamagedRange;

/// The result of a scrub. [`ScrubOptions`] has an example.
pub use ubtrfs_maintenance::scrub::ScrubReport;

/// The scrub of one device, in a [`ScrubReport`] and in [`Event::Scrub`](crate::Event::Scrub).
pub use ubtrfs_device::DeviceScrub;

/// The counts of a [`DeviceScrub`].
pub use ubtrfs_device::ScrubCounts;

/// Options of a scrub: of an open volume ([`Volume::scrub`]), or of an image or devices that nothing else has open.
///
/// A scrub reads data and tree blocks of every copy, on all devices in parallel, and verifies them. Damage is repaired from
/// other copies or from parity. Without another copy, the damaged files are listed.
///
/// ```
/// use ubtrfs::{ScrubOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// volume.root().write("/file", vec![7; 1 << 20])?;
/// volume.sync()?;
/// let report = volume.scrub(&ScrubOptions::new(), &mut ())?;
/// assert!(report.is_clean());
/// assert_eq!(report.totals().data_bytes, 1 << 20);
/// volume.close()?;
///
/// let report = ScrubOptions::new().read_only(true).open(&[&path])?.run(&mut ())?;
/// assert!(report.is_clean() && report.files.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScrubOptions {
    scrub: ubtrfs_maintenance::scrub::ScrubOptions,
    open: OfflineOptions,
}

impl ScrubOptions {
    /// Creates options that scrub all devices at full speed, and repair them.
    pub fn new() -> ScrubOptions {
        ScrubOptions::default()
    }

    /// Sets whether damage is only found. Nothing is written then, and repairable damage counts as corrected.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> ScrubOptions {
        self.scrub.read_only = read_only;
        self.open.read_only = read_only;
        self
    }

    /// Scrubs only these devices. By default all are scrubbed.
    #[must_use]
    pub fn devices(mut self, ids: impl IntoIterator<Item = u64>) -> ScrubOptions {
        self.scrub.devices = Some(ids.into_iter().collect());
        self
    }

    /// Continues a scrub that was cancelled, with the counts of its report.
    #[must_use]
    pub fn resume(mut self, devices: &[DeviceScrub]) -> ScrubOptions {
        let counts = devices.iter().map(|of| (of.device_id, of.counts));
        self.scrub.resumed = counts.collect();
        self
    }

    /// Continues the scrub of one device after the part with these counts.
    #[must_use]
    pub fn resume_device(mut self, id: u64, counts: ScrubCounts) -> ScrubOptions {
        self.scrub.resumed.insert(id, counts);
        self
    }

    /// Sets the limit of each device in bytes per second; 0 for none.
    #[must_use]
    pub fn bytes_per_second(mut self, limit: u64) -> ScrubOptions {
        self.scrub.bytes_per_second = limit;
        self
    }

    /// Sets the maximum number of listed ranges; 1000 by default.
    #[must_use]
    pub fn max_damage(mut self, max_damage: usize) -> ScrubOptions {
        self.scrub.max_damage = max_damage;
        self
    }

    /// Sets whether devices may be missing, for [`ScrubOptions::open`].
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> ScrubOptions {
        self.open.degraded = degraded;
        self
    }

    /// Sets the places to search for the other devices, for [`ScrubOptions::open`].
    #[must_use]
    pub fn scan(mut self, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> ScrubOptions {
        self.open.scan = places.into_iter().map(Into::into).collect();
        self
    }

    /// Returns whether damage is only found.
    pub fn is_read_only(&self) -> bool {
        self.scrub.read_only
    }

    /// Returns the limit of each device in bytes per second, or 0.
    pub fn limit(&self) -> u64 {
        self.scrub.bytes_per_second
    }

    /// Returns whether a device is scrubbed.
    pub fn includes(&self, id: u64) -> bool {
        let devices = &self.scrub.devices;
        devices.as_ref().is_none_or(|ids| ids.contains(&id))
    }

    /// Returns the counts of the earlier part of a device's scrub.
    pub fn resumed_counts(&self, id: u64) -> ScrubCounts {
        self.scrub.resumed.get(&id).copied().unwrap_or_default()
    }

    /// Opens the volume on the named devices and those found with them, for a scrub without a mount.
    ///
    /// # Errors
    ///
    /// A file does not exist (`NotFound`), it contains no btrfs (`InvalidData`), it is in use (`ResourceBusy`), or the volume
    /// is only read (`ReadOnlyFilesystem`).
    pub fn open<D: Clone + Into<DeviceName>>(&self, devices: &[D]) -> Result<OpenScrub> {
        let names: Vec<DeviceName> = devices.iter().cloned().map(Into::into).collect();
        let shown = names.first().map_or(Path::new(""), DeviceName::as_path);
        let opened = OfflineScrub::open(&names, &self.open).naming("scrub", shown)?;
        Ok(self.opened(opened, shown))
    }

    /// Opens the volume on the caller's own devices, as [`ScrubOptions::open`]; the paths are names for messages.
    ///
    /// # Errors
    ///
    /// As [`ScrubOptions::open`].
    pub fn open_devices(&self, devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>) -> Result<OpenScrub> {
        let shown = devices.first().map(|(path, _)| path.clone());
        let shown = shown.unwrap_or_default();
        let opened = OfflineScrub::from_devices(devices, &self.open).naming("scrub", &shown)?;
        Ok(self.opened(opened, &shown))
    }

    fn opened(&self, scrub: OfflineScrub, shown: &Path) -> OpenScrub {
        OpenScrub {
            scrub,
            options: self.clone(),
            shown: shown.to_owned(),
        }
    }
}

/// A volume that is open for a scrub. [`ScrubOptions`] has an example.
#[derive(Debug)]
pub struct OpenScrub {
    scrub: OfflineScrub,
    options: ScrubOptions,
    /// The first device, for messages.
    shown: PathBuf,
}

impl OpenScrub {
    /// Returns the UUID of the volume.
    pub fn uuid(&self) -> Uuid {
        self.scrub.uuid()
    }

    /// Returns the devices with their paths by id; the path of a missing one is `None`.
    pub fn devices(&self) -> Vec<(u64, Option<PathBuf>)> {
        self.scrub.devices()
    }

    /// Replaces the options of the scrub itself: devices, limits, and an earlier part.
    pub fn set_options(&mut self, options: &ScrubOptions) {
        let read_only = self.options.scrub.read_only || options.scrub.read_only;
        self.options.scrub = options.scrub.clone();
        self.options.scrub.read_only = read_only;
    }

    /// Runs the scrub, and closes the volume. Reports [`Event::Scrub`](crate::Event::Scrub) to `progress`. If `progress`
    /// cancels the scrub, its report has the counts so far.
    ///
    /// # Errors
    ///
    /// There is no such device (`NotFound`), or a device cannot be flushed.
    pub fn run(self, progress: &mut dyn Progress) -> Result<ScrubReport> {
        let report = self.scrub.run(&self.options.scrub, progress);
        report.naming("scrub", &self.shown)
    }
}

impl Volume {
    /// Scrubs the volume while it is in use. [`ScrubOptions`] has an example.
    ///
    /// Commits first, unless the scrub is read-only, and scrubs the last commit. Data without checksums is read, and never repaired. If there were errors, the error
    /// counts of the devices are saved by a commit at the end. If `progress` cancels the scrub, its report has the counts
    /// so far.
    ///
    /// # Errors
    ///
    /// - there is no such device (`NotFound`)
    /// - the volume is read-only and the scrub is not (`ReadOnlyFilesystem`)
    /// - the errors of [`Volume::sync`], by the commit at the end
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn Progress,
    ) -> Result<ScrubReport> {
        let report = scrub_volume(self.engine(), &options.scrub, progress);
        report.naming_alone("scrub the volume")
    }
}

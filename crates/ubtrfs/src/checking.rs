//! Consistency checks of volumes: an independent second opinion.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::CheckOptions;
use ubtrfs_device::progress::Progress;
use ubtrfs_device::{Access, BlockDevice, DeviceName, Holder, Pool, memory_limit};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::uuid::Uuid;

use crate::error::{Caused, Naming, Result};
use crate::layers::Choice;
use crate::named_option::named_options;

/// The part of the memory that a check uses at most.
const SHARE_OF_MEMORY: u64 = 3;
/// With less memory, caches hold too few blocks to be useful.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;

/// The severity of an issue.
///
/// ```
/// use ubtrfs::Severity;
///
/// assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Error);
/// ```
pub use ubtrfs_check::Severity;

/// Checks a volume that is not being written to, as `ubtrfs check` does. The check only reads. Above single trees it
/// shares no code with the writer. Memory use does not depend on the size of the volume.
///
/// ```
/// use ubtrfs::{Checker, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// volume.root().write("/file", b"content")?;
/// volume.close()?;
/// let report = Checker::new().read_data(true).check(&path)?;
/// assert!(report.is_clean(), "{:?}", report.issues);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checker {
    options: CheckOptions,
    /// `None` for the default.
    memory_bytes: Option<u64>,
    /// The volume to check, of several.
    volume: Option<String>,
}

/// The findings of a check. [`Checker`] has an example.
pub use ubtrfs_check::Report as CheckReport;

/// Data of the system of a NAS maker on a volume, in [`CheckReport::marks`].
pub use ubtrfs_check::MakerMark;

/// A problem of a volume, in a [`CheckReport`]. Its text has number, name and location.
///
/// ```
/// use std::path::PathBuf;
/// use std::sync::Arc;
/// use ubtrfs::{BlockDevice, Checker, MemDevice, Severity, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(256 << 20));
/// let devices = || vec![(PathBuf::from("device"), device.clone())];
/// Volume::builder().make(devices())?.close()?;
/// device.write_at(&[0; 4096], 64 << 20)?;
/// let report = Checker::new().check_devices(devices())?;
/// let issue = &report.issues[0];
/// assert_eq!(issue.severity(), Severity::Note);
/// assert!(issue.to_string().starts_with(&issue.fault.code()));
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_check::Issue as CheckIssue;

/// The kind of a problem, with its details. Its numbers are stable across releases: `docs/check.md` lists them.
/// [`CheckIssue`] has an example.
pub use ubtrfs_check::Fault as CheckFault;

/// The location of a problem on disk: device, tree, key and address. [`CheckIssue`] has an example.
pub use ubtrfs_check::Place as CheckPlace;

/// Sums over a volume, as in the output of `btrfs check`.
///
/// ```
/// use std::path::PathBuf;
/// use std::sync::Arc;
/// use ubtrfs::{BlockDevice, Checker, MemDevice, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(256 << 20));
/// let devices = || vec![(PathBuf::from("device"), device.clone())];
/// let volume = Volume::builder().make(devices())?;
/// volume.root().write("/file", vec![7; 1 << 20])?;
/// volume.close()?;
/// let figures = Checker::new().check_devices(devices())?.figures;
/// assert_eq!(figures.data_bytes_allocated, 1 << 20);
/// assert_eq!(figures.csum_bytes, (1 << 20) / 4096 * 4);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_check::Figures as CheckFigures;

named_options! {
    /// The options of checks, which [`Checker::set`] sets by their names. [`COPY_OPTIONS`](crate::COPY_OPTIONS) has an
    /// example.
    CHECK_OPTIONS of Checker:

    /// Also reads all data of every mirror, and verifies its checksums.
    read_data: bool => options.data_csums = read_data;

    /// Checks the volume although devices are missing. Each missing device is a warning then, instead of an error.
    degraded: bool => options.degraded = degraded;

    /// Sets the memory limit of buffers and caches, in bytes. Further records go to a temporary file. The default is
    /// 256 MiB, or a third of the memory that the process may use if that is less.
    memory_bytes: u64 => memory_bytes = Some(memory_bytes);

    /// Sets the maximum number of listed issues; 1000 by default. All issues are counted.
    max_issues: usize => options.max_issues = max_issues;

    /// Uses the trees of this copy of the superblock: 0, 1 or 2. The default is the newest.
    superblock_copy: usize => options.superblock_copy = Some(superblock_copy);

    /// Uses the trees of the newest readable backup root, if possible of an earlier transaction.
    backup_root: bool => options.backup_root = backup_root;

    /// Uses the root tree at this logical address.
    tree_root: u64 => options.tree_root = Some(Logical(tree_root));

    /// Uses the chunk tree at this logical address.
    chunk_root: u64 => options.chunk_root = Some(Logical(chunk_root));
}

impl Checker {
    /// Creates a check of the trees, with 256 MiB of memory, or a third of [`memory_limit`] if that is less.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Sets the folder for records that exceed the memory limit. The default is `TMPDIR`. If that is not set, it is the
    /// folder of an image, `/var/tmp` or `/tmp`: the first that is writable and not in memory.
    #[must_use]
    pub fn scratch_dir(mut self, folder: impl Into<PathBuf>) -> Checker {
        self.options.scratch_dir = Some(folder.into());
        self
    }

    /// Sets the places to search for the volume's other devices, as [`Builder::scan`](crate::Builder::scan).
    #[must_use]
    pub fn scan(mut self, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> Checker {
        self.options.scan = places.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the volume to check if the disks hold several, as [`Builder::volume`](crate::Builder::volume).
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>) -> Checker {
        self.volume = Some(name.into());
        self
    }

    /// Checks the volume on `device` and its other devices.
    ///
    /// # Errors
    ///
    /// - the errors of [`Checker::open`]
    /// - the superblock, backup root or tree of the options does not exist (`NotFound`, `InvalidData`)
    /// - records that exceed the memory limit cannot be written
    ///
    /// A damaged volume is not an error of this function, but an issue.
    pub fn check(&self, device: impl Into<DeviceName>) -> Result<CheckReport> {
        self.open(&[device.into()])?.run(&mut ())
    }

    /// Checks a volume on the caller's own devices; the paths are names for messages.
    ///
    /// # Errors
    ///
    /// As [`Checker::check`].
    pub fn check_devices(
        &self,
        devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    ) -> Result<CheckReport> {
        self.open_devices(devices)?.run(&mut ())
    }

    /// Opens the volume on the caller's own devices, as [`Checker::open`] does; the paths are names for messages.
    ///
    /// # Errors
    ///
    /// As [`Checker::open`].
    pub fn open_devices(&self, devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>) -> Result<OpenCheck> {
        let shown = devices.first().map(|(path, _)| path.clone());
        let shown = shown.unwrap_or_default();
        let pool = Pool::from_devices(devices, &ubtrfs_check::pool_options());
        Ok(self.opened(pool.naming("check", &shown)?, shown))
    }

    /// Opens the volume on all of `devices` and its other devices, for a check that begins later or reports its progress.
    ///
    /// Devices that other programs have open are accepted: [`OpenCheck::holders`] lists them.
    ///
    /// # Errors
    ///
    /// A file does not exist (`NotFound`), it contains no btrfs (`InvalidData`), or this library or command has it open
    /// for writing (`ResourceBusy`).
    pub fn open<D: Clone + Into<DeviceName>>(&self, devices: &[D]) -> Result<OpenCheck> {
        let names: Vec<DeviceName> = devices.iter().cloned().map(Into::into).collect();
        let shown = names
            .first()
            .map_or(Path::new(""), DeviceName::as_path)
            .to_owned();
        let pool = self.open_pool(&names).naming("check", &shown)?;
        Ok(self.opened(pool, shown))
    }

    fn open_pool(&self, names: &[DeviceName]) -> Caused<Pool> {
        let options = ubtrfs_check::pool_options();
        let choice = Choice {
            names,
            scan: &self.options.scan,
            volume: self.volume.as_deref(),
            access: Access::Read,
        };
        choice.open(
            || {
                Ok(Pool::open(
                    names,
                    &options.clone().scan(choice.scan.to_vec()),
                )?)
            },
            |devices| Ok(Pool::from_devices(devices, &options)?),
        )
    }

    fn opened(&self, pool: Pool, shown: PathBuf) -> OpenCheck {
        let mut options = self.options.clone();
        options.memory_bytes = self.memory_bytes.unwrap_or_else(|| {
            let share = memory_limit() / SHARE_OF_MEMORY;
            options.memory_bytes.min(share.max(LEAST_MEMORY_BYTES))
        });
        OpenCheck {
            pool,
            options,
            shown,
        }
    }
}

/// A volume that is open for a check.
///
/// ```
/// use std::ops::ControlFlow;
/// use ubtrfs::{Checker, Event, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// let uuid = volume.uuid();
/// volume.close()?;
/// let check = Checker::new().open(&[&path])?;
/// assert_eq!(check.uuid(), uuid);
/// assert!(check.holders().is_empty(), "it may be mounted");
/// let mut phases = Vec::new();
/// let report = check.run(&mut |event: &Event<'_>| {
///     if let Event::Phase(at) = event {
///         phases.push(format!("{}/{} {}", at.phase, at.phases, at.subject));
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert!(report.is_clean());
/// assert_eq!(phases[0], "1/8 superblocks");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OpenCheck {
    pool: Pool,
    options: CheckOptions,
    /// The first device, for messages.
    shown: PathBuf,
}

impl OpenCheck {
    /// Returns the UUID of the volume.
    pub fn uuid(&self) -> Uuid {
        self.pool.superblock().fsid
    }

    /// Lists the devices that others use. If a user writes to a device, the check may report issues that do not exist.
    pub fn holders(&self) -> Vec<(PathBuf, Holder)> {
        let devices = self.pool.devices().into_iter();
        devices
            .filter_map(|device| Some((device.path.unwrap_or_default(), device.holder?)))
            .collect()
    }

    /// Runs the check, and reports its phases to `progress`.
    ///
    /// # Errors
    ///
    /// As [`Checker::check`]; `progress` cancelled it (`Interrupted`), and there are no results.
    pub fn run(self, progress: &mut dyn Progress) -> Result<CheckReport> {
        let report = ubtrfs_check::check_pool(self.pool, &self.options, progress);
        report.naming("check", &self.shown)
    }
}

//! The scrub of a volume that nothing else has open: an image, or devices without a mount.
//!
//! The volume is opened without its transactions. So a volume with RAID5, which is only read otherwise, can be repaired.
//! And nothing is repaired before the scrub can count it.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::progress::Progress;
use ubtrfs_device::{Access, BlockDevice, DeviceName, Pool, PoolOptions};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_storage::roots::{Roots, RootsOptions, check_writable};
use ubtrfs_tree::StoreOptions;

use super::damaged_files::damaged_files;
use super::options::ScrubOptions;
use super::report::ScrubReport;
use super::run::{Findings, scrub_roots};
use crate::error::ScrubError;

/// Default memory of the caches.
const CACHE_BYTES: u64 = 64 << 20;

/// Options for opening a volume for a scrub.
#[derive(Clone, Debug, Default)]
pub struct OfflineOptions {
    /// Whether nothing is written. Other readers may have the volume open, too.
    pub read_only: bool,
    /// Whether devices may be missing.
    pub degraded: bool,
    /// Places to search for the other devices.
    pub scan: Vec<PathBuf>,
    /// Memory for tree blocks.
    pub cache_bytes: Option<u64>,
}

/// A volume that is open for a scrub.
#[derive(Debug)]
pub struct OfflineScrub {
    roots: Arc<Roots>,
    options: OfflineOptions,
}

impl OfflineScrub {
    /// Opens the volume on the named devices and those found with them.
    ///
    /// # Errors
    /// A device cannot be opened or is in use, the volume cannot be written, or its chunk tree or root tree is unreadable.
    pub fn open<D: Clone + Into<DeviceName>>(
        devices: &[D],
        options: &OfflineOptions,
    ) -> Result<OfflineScrub, ScrubError> {
        let pool_options = pool_options(options).scan(options.scan.clone());
        OfflineScrub::of_pool(Pool::open(devices, &pool_options)?, options)
    }

    /// Opens the volume on devices of the caller; the paths are names for messages.
    ///
    /// # Errors
    /// As [`OfflineScrub::open`].
    pub fn from_devices(
        devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
        options: &OfflineOptions,
    ) -> Result<OfflineScrub, ScrubError> {
        let pool = Pool::from_devices(devices, &pool_options(options))?;
        OfflineScrub::of_pool(pool, options)
    }

    fn of_pool(pool: Pool, options: &OfflineOptions) -> Result<OfflineScrub, ScrubError> {
        let superblock = pool.superblock().clone();
        if !options.read_only {
            check_writable(&superblock)?;
        }
        let pool = Arc::new(pool);
        let cache_bytes = options.cache_bytes.unwrap_or(CACHE_BYTES);
        let roots_options = RootsOptions {
            writable: false,
            edits_trees: false,
            acls: false,
            new_file_flags: InodeFlags::empty(),
            lazy_times: false,
            ignore_bad_top_trees: false,
            lookup_bytes: 0,
            store: StoreOptions {
                cache_bytes,
                finds_marks: !options.read_only,
                ..StoreOptions::default()
            },
        };
        let roots = Arc::new(Roots::open(&pool, superblock, &roots_options)?);
        roots.load_device_errors()?;
        if !options.read_only {
            roots.refuse_marked_roots()?;
        }
        Ok(OfflineScrub {
            roots,
            options: options.clone(),
        })
    }

    /// Returns the UUID of the volume.
    pub fn uuid(&self) -> Uuid {
        self.roots.superblock().fsid
    }

    /// Returns the ids and paths of the devices. Missing devices have no path.
    pub fn devices(&self) -> Vec<(u64, Option<PathBuf>)> {
        let devices = self.roots.pool().devices().into_iter();
        devices
            .map(|device| (device.devid.0, device.path))
            .collect()
    }

    /// Runs the scrub, and closes the volume. A scrub that repairs also saves the error counts of the devices and writes
    /// damaged superblocks.
    ///
    /// A scrub that `progress` cancels returns its report all the same.
    ///
    /// # Errors
    /// There is no such device; a device cannot be flushed.
    pub fn run(
        self,
        options: &ScrubOptions,
        progress: &mut dyn Progress,
    ) -> Result<ScrubReport, ScrubError> {
        let read_only = options.read_only || self.options.read_only;
        let options = ScrubOptions {
            read_only,
            ..options.clone()
        };
        let pool = Arc::clone(self.roots.pool());
        if !read_only {
            pool.allow_mirror_repair();
        }
        let mut findings = scrub_roots(&self.roots, &options, !read_only, progress)?;
        pool.end_mirror_repair();
        if !read_only {
            pool.flush()?.all()?;
            findings.report.unsaved = self.save(&pool, &mut findings);
        }
        let devices = pool.present_devices();
        drop(self.roots);
        drop(pool);
        let mut report = findings.report;
        find_files(devices, &mut report, options.max_damage);
        Ok(report)
    }

    /// Saves error counts and superblocks by a commit, if there are errors. Returns the reason of a failure.
    fn save(&self, pool: &Arc<Pool>, findings: &mut Findings) -> Option<String> {
        if findings.errors.is_empty() && !findings.has_bad_superblocks() {
            return None;
        }
        let options = OpenOptions::new()
            .writable(true)
            .commit_interval(None)
            .degraded(self.options.degraded);
        let committed = Volume::from_devices(pool.present_devices(), &options).and_then(|volume| {
            volume.add_device_errors(&findings.errors)?;
            volume.close()
        });
        match committed {
            Ok(()) => {
                findings.superblocks_were_written();
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

fn pool_options(options: &OfflineOptions) -> PoolOptions {
    let access = if options.read_only {
        Access::Read
    } else {
        Access::Write
    };
    PoolOptions::new().access(access).degraded(options.degraded)
}

/// Finds the files of the damage in the report. The volume is only read.
fn find_files(
    devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    report: &mut ScrubReport,
    limit: usize,
) {
    if report.damage.is_empty() {
        return;
    }
    match Volume::from_devices(devices, &OpenOptions::new().degraded(true)) {
        Ok(volume) => damaged_files(&volume, report, limit),
        Err(error) => {
            tracing::warn!(%error, "cannot find the damaged files");
            report.are_all_files = false;
        }
    }
}

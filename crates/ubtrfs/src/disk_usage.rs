//! The space used by files, alone and together.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use ubtrfs_fs::inspect::{FileUsage, SharedRanges, SharingCache};
use ubtrfs_fs::{FileId, FileKind};

use crate::error::{Cause, Caused, Naming, Result};
use crate::handle::Engine;
use crate::read_dir::DirEntry;
use crate::subvolume::Subvolume;
use crate::walk::WalkOptions;

/// The space used by files, in bytes of their extents. Preallocated space counts; holes and inline files do not.
/// Compressed data counts with the uncompressed size.
///
/// ```
/// use ubtrfs::{Access, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/old", vec![7; 1 << 20])?;
/// volume.root().snapshot("/data", "/before", Access::ReadOnly)?;
/// data.write("/new", vec![7; 2 << 20])?;
/// volume.sync()?;
/// let usage = data.disk_usage("/")?;
/// assert_eq!(usage.total_bytes, 3 << 20);
/// assert_eq!(usage.exclusive_bytes, 2 << 20);
/// assert_eq!(usage.shared_bytes, 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// All bytes. Data that is referenced several times counts several times.
    pub total_bytes: u64,
    /// The bytes of extents that no other file or snapshot uses.
    pub exclusive_bytes: u64,
    /// The bytes of extents that are also used by other files, whether these were measured or not. Each extent counts
    /// once.
    pub shared_bytes: u64,
}

/// The space used by one file. [`UsageMeter`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSpace {
    /// All bytes of its extents. Data that the file references several times counts several times.
    pub total_bytes: u64,
    /// The bytes of extents that no other file or snapshot uses.
    pub exclusive_bytes: u64,
}

/// Measures the space of files one by one, as [`Subvolume::disk_usage`] does for a whole tree.
///
/// The meter remembers shared extents, so one meter for many files is faster than one for each.
///
/// ```
/// use ubtrfs::{Volume, WalkOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/file", vec![7; 1 << 20])?;
/// root.hard_link("/file", "/link")?;
/// root.write("/other", vec![7; 2 << 20])?;
/// volume.sync()?;
/// let mut meter = root.usage_meter();
/// let mut total = 0;
/// for entry in root.walk("/", &WalkOptions::new())? {
///     // The second name of the file counts nothing.
///     if let Some(space) = meter.measure(&entry?)? {
///         total += space.total_bytes;
///     }
/// }
/// assert_eq!(total, 3 << 20);
/// assert_eq!(meter.shared_bytes(), 0);
/// # Ok(())
/// # }
/// ```
pub struct UsageMeter {
    engine: Engine,
    cache: SharingCache,
    ranges: SharedRanges,
    /// Counted files with several names.
    seen: HashSet<FileId>,
}

impl fmt::Debug for UsageMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageMeter").finish_non_exhaustive()
    }
}

impl UsageMeter {
    /// Measures a regular file. Returns `None` for other files, and for a file that was already measured under another
    /// name.
    ///
    /// # Errors
    ///
    /// The file no longer exists, or belongs to another volume (`CrossesDevices`), or the volume is damaged or cannot
    /// be read.
    pub fn measure(&mut self, entry: &DirEntry) -> Result<Option<FileSpace>> {
        if !entry.engine.is_same(&self.engine) {
            return Err(Cause::OtherVolume).naming("measure", &entry.path());
        }
        let id = entry.id();
        if !entry.file_type().is_file() || !self.is_new(id) {
            return Ok(None);
        }
        let space = self.space_of(id);
        space.map(Some).naming("measure", &entry.path())
    }

    /// Returns the bytes of extents of all measured files that other files or snapshots also use. Each extent counts
    /// once.
    pub fn shared_bytes(&self) -> u64 {
        self.ranges.bytes()
    }

    fn is_new(&mut self, id: FileId) -> bool {
        match self.engine.attr(id) {
            Ok(attr) if attr.nlink > 1 => self.seen.insert(id),
            // An unreadable inode causes an error when it is measured.
            _ => true,
        }
    }

    fn space_of(&mut self, id: FileId) -> Caused<FileSpace> {
        let usage = self
            .engine
            .file_usage(id, &mut self.cache, &mut self.ranges)?;
        let FileUsage { total, shared } = usage;
        Ok(FileSpace {
            total_bytes: total,
            exclusive_bytes: total.saturating_sub(shared),
        })
    }
}

impl DiskUsage {
    fn add(&mut self, space: FileSpace) {
        self.total_bytes = self.total_bytes.saturating_add(space.total_bytes);
        self.exclusive_bytes = self.exclusive_bytes.saturating_add(space.exclusive_bytes);
    }
}

impl Subvolume {
    /// Creates a meter for single files.
    pub fn usage_meter(&self) -> UsageMeter {
        UsageMeter {
            engine: self.engine.clone(),
            cache: SharingCache::default(),
            ranges: SharedRanges::default(),
            seen: HashSet::new(),
        }
    }

    /// Measures the space used by a file, or by all files below a directory. A file with several names counts once. A
    /// link at the end of the path is not followed.
    ///
    /// # Errors
    ///
    /// `path` does not exist, or a file below it cannot be read. [`UsageMeter`] can continue after such files.
    pub fn disk_usage(&self, path: impl AsRef<Path>) -> Result<DiskUsage> {
        let path = path.as_ref();
        self.measure(path).naming("measure", path)
    }

    fn measure(&self, path: &Path) -> Caused<DiskUsage> {
        let mut meter = self.usage_meter();
        let mut usage = DiskUsage::default();
        let id = self.resolve_link(path)?;
        match self.engine.attr(id)?.kind {
            FileKind::Directory => {
                for entry in self.walk(path, &WalkOptions::new().no_follow(true))? {
                    if let Some(space) = meter.measure(&entry?)? {
                        usage.add(space);
                    }
                }
            }
            FileKind::Regular => usage.add(meter.space_of(id)?),
            _ => {}
        }
        usage.shared_bytes = meter.shared_bytes();
        Ok(usage)
    }
}

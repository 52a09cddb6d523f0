//! The space that files use, alone and together.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use ubtrfs_engine::inspect::{FileUsage, SharedRanges, SharingCache};
use ubtrfs_engine::{FileId, FileKind};

use crate::error::{Cause, Caused, Naming, Result};
use crate::handle::Engine;
use crate::read_dir::DirEntry;
use crate::subvolume::Subvolume;
use crate::walk::WalkOptions;

/// The space that files use, in bytes of their extents. Preallocated space counts; holes, and files that are kept in their
/// items, do not. Compressed data counts with the size of its content.
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
    /// All bytes, those that are used several times as often.
    pub total_bytes: u64,
    /// The bytes of extents that no other file or snapshot uses.
    pub exclusive_bytes: u64,
    /// The bytes of extents that others use as well, within what was measured or outside. Each counts once.
    pub shared_bytes: u64,
}

/// The space that one file uses. [`UsageMeter`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSpace {
    /// All bytes of its extents, those that it uses several times as often.
    pub total_bytes: u64,
    /// The bytes of extents that no other file or snapshot uses.
    pub exclusive_bytes: u64,
}

/// Measures the space of files one by one, as [`Subvolume::disk_usage`] does for a whole tree.
///
/// It remembers which extents are shared: one for many files is faster than one for each.
///
/// ```
/// use ubtrfs::Volume;
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
/// for entry in root.walk("/")? {
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
    /// Files with several names that were counted.
    seen: HashSet<FileId>,
}

impl fmt::Debug for UsageMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageMeter").finish_non_exhaustive()
    }
}

impl UsageMeter {
    /// Measures a regular file. None: it is none, or was measured under another of its names.
    ///
    /// # Errors
    ///
    /// The file is gone, or of another volume (`CrossesDevices`), or the volume is damaged or cannot be read.
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

    /// Returns the bytes of extents of all files measured so far that other files or snapshots use as well. Each counts
    /// once.
    pub fn shared_bytes(&self) -> u64 {
        self.ranges.bytes()
    }

    fn is_new(&mut self, id: FileId) -> bool {
        match self.engine.attr(id) {
            Ok(attr) if attr.nlink > 1 => self.seen.insert(id),
            // An inode that cannot be read is an error when it is measured.
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
    /// Begins to measure files, each on its own.
    pub fn usage_meter(&self) -> UsageMeter {
        UsageMeter {
            engine: self.engine.clone(),
            cache: SharingCache::default(),
            ranges: SharedRanges::default(),
            seen: HashSet::new(),
        }
    }

    /// Measures the space that a file uses, or all files below a directory. A file with several names counts once. A link
    /// at the end of the path is not followed.
    ///
    /// # Errors
    ///
    /// Nothing is at `path`, or something in it cannot be read. [`UsageMeter`] goes on past such files.
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
                for entry in self.walk_with(path, &WalkOptions::new().no_follow(true))? {
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

//! Extents of files that were written since a transaction.
//!
//! A cursor keeps freed space from being allocated again. So none is held between two steps of the iterator: the search
//! runs in batches, each after the last key of the previous one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{Error as EngineError, FileId};

use crate::error::{Naming, Result};
use crate::subvolume::Subvolume;

/// The number of extents that are read at a time.
const BATCH: usize = 256;

/// An extent of a file: a contiguous range of its content that was written at once. [`NewExtents`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewExtent {
    /// The inode number.
    pub ino: u64,
    /// A path of the file from the root of the subvolume, without a leading slash.
    pub path: PathBuf,
    /// The offset of the range in the file, in bytes.
    pub offset: u64,
    /// The length of the range.
    pub len: u64,
    /// The address of the extent within the volume; 0 for a hole, and for inline data.
    pub disk_start: u64,
    /// The offset of the range in the extent.
    pub disk_offset: u64,
    /// The transaction that wrote it.
    pub generation: u64,
    /// Whether it is compressed.
    pub is_compressed: bool,
    /// Whether it is inline.
    pub is_inline: bool,
    /// Whether it is allocated, but not written yet.
    pub is_preallocated: bool,
}

/// An iterator over the extents that were written in a transaction or after it, by ascending inodes and offsets. Files
/// without a name are left out. It ends after the first error.
///
/// Memory use does not depend on the files. Concurrent changes may or may not be included.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/old", vec![7; 1 << 20])?;
/// volume.sync()?;
/// let before = root.info()?.generation;
/// root.create_dir("/dir")?;
/// root.write("/dir/new", vec![7; 1 << 20])?;
/// volume.sync()?;
/// let extents = root.extents_since(before + 1).collect::<Result<Vec<_>, _>>()?;
/// assert!(extents.iter().all(|extent| extent.path == Path::new("dir/new")));
/// assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NewExtents {
    subvolume: Subvolume,
    since: u64,
    /// The start of the next batch; `None` after the last.
    from: Option<Key>,
    batch: VecDeque<NewExtent>,
    /// Returned after the extents that were found before it.
    failure: Option<EngineError>,
    /// The last inode, with its path.
    last: Option<(u64, Option<Vec<u8>>)>,
    last_dir: Option<(FileId, Vec<u8>)>,
}

impl Subvolume {
    /// Finds the extents of files that were written in a transaction of at least this number. An uncommitted change
    /// belongs to the next transaction.
    pub fn extents_since(&self, generation: u64) -> NewExtents {
        NewExtents {
            subvolume: self.clone(),
            since: generation,
            from: Some(Key::MIN),
            batch: VecDeque::new(),
            failure: None,
            last: None,
            last_dir: None,
        }
    }
}

impl NewExtents {
    fn fill(&mut self, from: Key) -> std::result::Result<(), EngineError> {
        let id = self.subvolume.root.root;
        let tree = self.subvolume.engine.subvolume_tree(id)?;
        let mut cursor = tree.view.cursor().sequential();
        let mut more = cursor.seek(&from)?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            let extent = if key.item_type == KeyType::EXTENT_DATA {
                FileExtent::decode(bytes).filter(|e| e.transid().0 >= self.since)
            } else {
                None
            };
            if let Some(extent) = extent {
                if self
                    .last
                    .as_ref()
                    .is_none_or(|(ino, _)| *ino != key.objectid)
                {
                    let file = FileId::new(id, InodeNr(key.objectid));
                    let path = self.path_of(file)?;
                    self.last = Some((key.objectid, path));
                }
                if let Some((_, Some(path))) = &self.last {
                    self.batch.push_back(NewExtent::of(key, &extent, path));
                }
                if self.batch.len() == BATCH {
                    self.from = key.next();
                    break;
                }
            }
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// Finds the first path of a file. Files of one directory often have adjacent inode numbers, so the path of the
    /// last directory is cached.
    fn path_of(&mut self, file: FileId) -> std::result::Result<Option<Vec<u8>>, EngineError> {
        let engine = &self.subvolume.engine;
        let Some((dir, name)) = engine.inode_names(file)?.into_iter().next() else {
            return Ok(None);
        };
        let mut path = match self.last_dir.take() {
            Some((last, path)) if last == dir => path,
            _ => engine.path_in_subvolume(dir)?,
        };
        self.last_dir = Some((dir, path.clone()));
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        Ok(Some(path))
    }
}

impl Iterator for NewExtents {
    type Item = Result<NewExtent>;

    fn next(&mut self) -> Option<Result<NewExtent>> {
        if self.batch.is_empty()
            && let Some(from) = self.from.take()
        {
            self.failure = self.fill(from).err();
        }
        match self.batch.pop_front() {
            Some(extent) => Some(Ok(extent)),
            None => {
                let failure = self.failure.take()?;
                Some(Err(failure).naming_alone("find new extents"))
            }
        }
    }
}

impl NewExtent {
    fn of(key: Key, extent: &FileExtent<'_>, path: &[u8]) -> NewExtent {
        let (disk_start, disk_offset, is_preallocated) = match extent {
            FileExtent::Inline { .. } => (0, 0, false),
            FileExtent::Regular { body, prealloc, .. } => {
                (body.disk_bytenr.get(), body.offset.get(), *prealloc)
            }
        };
        NewExtent {
            ino: key.objectid,
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
            offset: key.offset,
            len: extent.num_bytes(),
            disk_start,
            disk_offset,
            generation: extent.transid().0,
            is_compressed: extent.head().compression != 0,
            is_inline: matches!(extent, FileExtent::Inline { .. }),
            is_preallocated,
        }
    }
}

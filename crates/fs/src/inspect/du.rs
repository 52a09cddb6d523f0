//! The disk usage of files, and the part of it that is shared.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::{FileId, RootsOfBlocks};

use crate::error::Result;
use crate::volume::Volume;

/// Bytes of a file's extents on disk, including preallocated ones. Holes and inline data do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUsage {
    pub total: u64,
    /// The bytes in extents that another file or snapshot uses as well.
    pub shared: u64,
}

/// A set of logical ranges.
#[derive(Clone, Debug, Default)]
pub struct SharedRanges {
    /// Start to end. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl SharedRanges {
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        // Merge ranges that overlap or touch, last first.
        while let Some((&other_start, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.ranges.remove(&other_start);
        }
        self.ranges.insert(start, end);
    }

    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

/// A cache of the sharing state of extents, kept across files.
#[derive(Debug, Default)]
pub struct SharingCache {
    roots: RootsOfBlocks,
    shared: BTreeMap<(Logical, FileId), bool>,
}

/// The most cached results.
const MAX_REMEMBERED: usize = 1 << 16;

impl Volume {
    /// Returns the space that a file uses, and adds the ranges of its shared extents to `ranges`.
    pub fn file_usage(
        &self,
        id: FileId,
        cache: &mut SharingCache,
        ranges: &mut SharedRanges,
    ) -> Result<FileUsage> {
        let tree = self.subvolume_tree(id.root)?;
        let mut usage = FileUsage::default();
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&Key::new(id.ino.0, KeyType::EXTENT_DATA, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (id.ino.0, KeyType::EXTENT_DATA) {
                break;
            }
            if let Some(FileExtent::Regular { head, body, .. }) = FileExtent::decode(bytes)
                && let Some(extent) = body.disk()
            {
                let len = body.num_bytes.get();
                usage.total = usage.total.saturating_add(len);
                if self.is_shared(extent, id, cache)? {
                    usage.shared = usage.shared.saturating_add(len);
                    let within = match head.compression {
                        0 => body.offset.get(),
                        _ => 0,
                    };
                    let start = extent.0.saturating_add(within);
                    ranges.insert(start..start.saturating_add(len));
                }
            }
            more = cursor.advance()?;
        }
        Ok(usage)
    }

    /// Returns whether another inode, or the same one in another subvolume, uses an extent.
    fn is_shared(&self, extent: Logical, id: FileId, cache: &mut SharingCache) -> Result<bool> {
        if let Some(&shared) = cache.shared.get(&(extent, id)) {
            return Ok(shared);
        }
        let mut shared = false;
        self.extent_users(extent, None, &mut cache.roots, &mut |user| {
            shared = user.file() != id;
            if shared {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if cache.shared.len() >= MAX_REMEMBERED {
            cache.shared.clear();
        }
        cache.shared.insert((extent, id), shared);
        Ok(shared)
    }
}

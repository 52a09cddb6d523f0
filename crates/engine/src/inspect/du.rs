//! How much space files use, and how much of it is theirs alone.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_transaction::{FileId, RootsOfBlocks};

use crate::error::Result;
use crate::volume::Volume;

/// Bytes of a file's extents outside the trees, preallocated ones included, holes and inline data not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUsage {
    pub total: u64,
    /// The part of these bytes in extents that another file or snapshot uses as well.
    pub shared: u64,
}

/// Logical ranges, united.
#[derive(Clone, Debug, Default)]
pub struct SharedRanges {
    /// Start to end; they neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl SharedRanges {
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        // Ranges that begin at or before the end and reach the start are taken in, last first.
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

/// A cache of which extents are shared, kept from file to file.
#[derive(Debug, Default)]
pub struct SharingCache {
    roots: RootsOfBlocks,
    shared: BTreeMap<(Logical, FileId), bool>,
}

/// How many answers are remembered at most.
const MAX_REMEMBERED: usize = 1 << 16;

impl Volume {
    /// Returns the space that a file uses. Ranges of shared extents are added to `ranges`.
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

    /// Returns whether any other inode, or the same one in another subvolume, uses an extent.
    fn is_shared(&self, extent: Logical, id: FileId, cache: &mut SharingCache) -> Result<bool> {
        if let Some(&shared) = cache.shared.get(&(extent, id)) {
            return Ok(shared);
        }
        let mut shared = false;
        self.extent_users(extent, None, &mut cache.roots, &mut |user| {
            shared = user.file() != id;
            match shared {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if cache.shared.len() >= MAX_REMEMBERED {
            cache.shared.clear();
        }
        cache.shared.insert((extent, id), shared);
        Ok(shared)
    }
}

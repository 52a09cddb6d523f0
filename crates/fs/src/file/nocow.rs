//! Overwriting data without copy on write (nocow): the parts of a file that allow it.
//!
//! These are preallocated extents, and all extents of a file without copy on write, if:
//! - The extent is not compressed, and no other file refers to it.
//! - The extent is newer than the last snapshot of the subvolume.
//! - The extent has no checksums. For a preallocated extent only the part to be overwritten counts.
//! - Its block group is not read-only.
//!
//! Such a write costs one look-up of the block group, and changes no item of the extent tree.
//!
//! Invariants
//! - NOCOW-1: an extent that is cached as exclusive to the file has no other reference. A clone that adds one
//!   clears the cache. A snapshot raises the tree's `last_snapshot`, which invalidates the cache.
//! - NOCOW-2: a reference that a clone added, and that is not in the extent tree yet, is in `SharedExtents`.
//! - NOCOW-3: nothing is overwritten while a snapshot of the tree is being made: a snapshot holds
//!   `Tree::nocow_lock` exclusively, a write shared.
//! - NOCOW-4: a deleted subvolume is not freed while any of its data is being overwritten. A writer that
//!   holds `Tree::nocow_lock` has seen the subvolume alive, and the freeze tries the lock.
//!
//! Locks: the file's extents. No other lock is taken that threads hold for long.

use std::ops::Range;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InlineRef, InodeFlags, decode_extent};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::DataRef;
use ubtrfs_storage::csum_tree::has_csums;
use ubtrfs_storage::space::NocowWrite;

use super::Files;
use super::extent::{DiskPart, Extent};
use super::extent_edit::ExtentEdit;
use crate::error::Result;
use crate::inode::{FileExtentsState, Inode};

/// A part of a file that may be overwritten while this is held.
#[derive(Debug)]
pub(super) struct NocowRange {
    /// File offset.
    pub(super) start: u64,
    pub(super) part: DiskPart,
    pub(super) handle: NocowWrite,
}

impl Files {
    /// Returns the parts of `range` (whole sectors of the file) that may be overwritten. `extent_edit` holds
    /// the file's extents there. The caller holds `Tree::nocow_lock` (NOCOW-3).
    pub(super) fn places_to_overwrite(
        &self,
        inode: &Inode,
        extents: &mut FileExtentsState,
        extent_edit: &ExtentEdit,
        flags: InodeFlags,
        range: Range<u64>,
    ) -> Result<Vec<NocowRange>> {
        let mut places = Vec::new();
        for (place, extent) in extent_edit.overlapping(range.clone()) {
            let Extent::Disk(whole) = extent else {
                continue;
            };
            if !may_overwrite(whole, flags) || !self.is_own(inode, extents, place.start, whole)? {
                continue;
            }
            let start = place.start.max(range.start);
            let end = place.end.min(range.end);
            let part = DiskPart {
                offset: whole.offset + (start - place.start),
                len: end - start,
                ..whole.clone()
            };
            // Written parts of a preallocated extent have checksums, unwritten parts do not.
            if whole.prealloc && has_csums(&self.roots, part.logical(), part.len)? {
                continue;
            }
            let Some(handle) = self
                .inodes
                .transactions()?
                .space
                .begin_nocow_write(part.logical())
            else {
                continue;
            };
            places.push(NocowRange {
                start,
                part,
                handle,
            });
        }
        Ok(places)
    }

    /// Returns whether only this file refers to an extent, through the item at `start` and other pieces of
    /// it.
    fn is_own(
        &self,
        inode: &Inode,
        extents: &mut FileExtentsState,
        start: u64,
        part: &DiskPart,
    ) -> Result<bool> {
        let last_snapshot = inode.tree.last_snapshot();
        if part.generation <= last_snapshot {
            return Ok(false);
        }
        if extents.is_own(part.disk.start, last_snapshot) {
            return Ok(true);
        }
        let own = self.has_only_ref(part, part.data_ref(inode.id, start))?
            && (part.prealloc || !has_csums(&self.roots, part.disk.start, part.disk.len)?);
        if own {
            extents.note_own(part.disk.start);
        }
        Ok(own)
    }

    fn has_only_ref(&self, part: &DiskPart, data: DataRef) -> Result<bool> {
        // Read `committed` before the view: the view then has at least the items of that transaction.
        let committed = self.inodes.transactions()?.committed();
        // NOCOW-2
        if self
            .inodes
            .transactions()?
            .shared_extents
            .contains(part.disk.start)
        {
            return Ok(false);
        }
        let tree = self.roots.tree(RootId::EXTENT_TREE)?;
        let key = Key::new(part.disk.start.0, KeyType::EXTENT_ITEM, part.disk.len);
        let Some(item) = tree.view.get(&key)? else {
            // Not in the tree: the transaction that allocated it is not committed yet.
            return Ok(part.generation > committed.0);
        };
        let Some(extent) = decode_extent(KeyType::EXTENT_ITEM, &item) else {
            return Ok(false);
        };
        let mut counted = 0;
        for reference in extent.refs {
            match reference {
                InlineRef::ExtentData(found) => {
                    let found_ref = (found.root.get(), found.objectid.get(), found.offset.get());
                    if found_ref != (data.root.0, data.ino.0, data.offset) {
                        return Ok(false);
                    }
                    counted += reference.count();
                }
                InlineRef::Owner { .. } => {}
                _ => return Ok(false),
            }
        }
        // References in separate items count in the head but are not inline, so the sums differ then.
        Ok(counted == extent.head.refs.get())
    }
}

fn may_overwrite(part: &DiskPart, flags: InodeFlags) -> bool {
    let as_is = flags.contains(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    part.compression == Compression::None && (part.prealloc || as_is)
}

//! The copy of a device to its replacement, while the volume is in use.
//!
//! Every block group with a stripe on the device is copied, as far as its space is in use. Data with checksums and tree
//! blocks are verified, and read from another mirror if need be. The rest is copied as it is: data without checksums,
//! and space that was allocated since the last commit.
//!
//! Invariants
//! - REPLACE-COPY-1: writes already go to both devices when the free space of a group is looked at. So space that is
//!   free then needs no copy.
//! - REPLACE-COPY-2: a committed state is held while its extents are verified. So their space is not reused, and their
//!   checksums apply.
//!
//! Not here: writes to both devices (`Pool`), the commit that puts the replacement in place (`commit::devices`).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, CopyRange, GoodBlock, STRIPE_LEN};
use ubtrfs_format::check::{Expect, check_block};
use ubtrfs_format::ids::{DevId, Logical, RootId, Transid};
use ubtrfs_format::item::{DevReplaceItem, ExtentFlags, ExtentHead, FileTime};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use super::manager::TransactionManager;
use super::reservation::EditEstimate;
use crate::csum_tree::data_csums;
use crate::error::{DeviceSetError, Error, Result};
use crate::range_set::RangeSet;
use crate::roots::{CommittedState, Roots, TreeSource};
use crate::space::{BlockGroup, DeviceChange};

/// The number of bytes that one step copies, during which nothing is written to the volume.
const STEP_BYTES: u64 = 256 << 10;

/// The devid in the item of a replacement that has ended.
const NO_DEVICE: u64 = u64::MAX;
/// The state of a replacement that has ended.
const FINISHED: u64 = 2;
/// The states of a replacement that a mount by the kernel would continue.
const UNFINISHED: [u64; 2] = [1, 4];

/// Returns the key of the item in the device tree that records a replacement.
pub(crate) fn dev_replace_key() -> Key {
    Key::new(0, KeyType::DEV_REPLACE, 0)
}

/// Refuses a volume on which the kernel has begun a replacement. The kernel continues at its position, and would miss
/// writes before it.
pub(crate) fn refuse_unfinished(roots: &Roots) -> Result<()> {
    let found = roots.tree(RootId::DEV_TREE)?.view.get(&dev_replace_key())?;
    let item = found
        .as_deref()
        .and_then(|bytes| DevReplaceItem::read_from_prefix(bytes).ok());
    match item {
        Some((item, _)) if UNFINISHED.contains(&item.replace_state.get()) => {
            let devid = item.src_devid;
            Err(Error::Unwritable(format!(
                "the kernel has begun to replace its device {devid}, and must finish or cancel that"
            )))
        }
        _ => Ok(()),
    }
}

/// The outcome of a replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaceCounts {
    /// Bytes of block groups that were copied.
    pub copied_bytes: u64,
    /// Sectors and tree blocks without a good copy. They were copied as they are.
    pub uncorrectable: u64,
}

/// An extent in the extent tree.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    len: u64,
    /// The generation of a tree block.
    tree_block: Option<Transid>,
}

impl TransactionManager {
    /// Replaces a device by an empty one of at least its size. Other operations continue. The caller erases the replaced
    /// device afterwards.
    ///
    /// `keep_going` gets the number of bytes copied since its last call. If it returns false, the copy ends, and the
    /// device stays.
    ///
    /// Errors: the replacement cannot be written; `keep_going` ended it; as `commit_running`.
    pub fn replace_device(
        &self,
        devid: DevId,
        path: &Path,
        block: &Arc<dyn BlockDevice>,
        keep_going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<ReplaceCounts> {
        self.check_may_commit()?;
        let pool = self.roots.pool();
        let started = FileTime::now().sec as u64;
        pool.begin_replacement(devid, path, block)?;
        let copied = self.copy_device(devid, keep_going);
        let copied = copied.and_then(|counts| {
            let item = DevReplaceItem {
                src_devid: NO_DEVICE.into(),
                cursor_left: 0.into(),
                cursor_right: 0.into(),
                cont_reading_from_srcdev_mode: 0.into(),
                replace_state: FINISHED.into(),
                time_started: started.into(),
                time_stopped: (FileTime::now().sec as u64).into(),
                num_write_errors: 0.into(),
                num_uncorrectable_read_errors: counts.uncorrectable.into(),
            };
            self.change_devices(DeviceChange::Replace { devid, item })?;
            Ok(counts)
        });
        match copied {
            Ok(counts) => {
                pool.finish_replacement(devid);
                self.space.note_present(devid);
                self.save_new_counts();
                Ok(counts)
            }
            Err(error) => {
                pool.cancel_replacement(devid);
                Err(error)
            }
        }
    }

    /// Makes the next commit save the error counts of the new device, which are 0.
    fn save_new_counts(&self) {
        let estimate = EditEstimate::items(1).with_global_reserve();
        let joined = self
            .reserve_metadata(RootId::DEV_TREE, estimate)
            .and_then(|reservation| self.join_transaction(reservation));
        match joined {
            Ok(txn) => txn.edit_superblock(|edits| edits.device_errors_changed = true),
            // A later commit saves them.
            Err(error) => tracing::warn!(%error, "the error counts are not saved yet"),
        }
    }

    fn copy_device(
        &self,
        devid: DevId,
        keep_going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<ReplaceCounts> {
        let mut copy = Copy {
            manager: self,
            devid,
            counts: ReplaceCounts::default(),
            keep_going,
        };
        for group in self.space.groups().iter() {
            let (start, len) = (group.start(), group.len_bytes());
            if self.roots.pool().is_on_device(devid, start, len) {
                copy.group(group)?;
            }
        }
        Ok(copy.counts)
    }
}

/// A copy in progress.
struct Copy<'a> {
    manager: &'a TransactionManager,
    devid: DevId,
    counts: ReplaceCounts,
    keep_going: &'a mut dyn FnMut(u64) -> bool,
}

impl Copy<'_> {
    fn group(&mut self, group: &Arc<BlockGroup>) -> Result<()> {
        // REPLACE-COPY-2
        let state = self.manager.roots.committed_state();
        // REPLACE-COPY-1
        let mut rest = RangeSet::default();
        for range in self.manager.space.ranges_in_use(group) {
            rest.add(range);
        }
        let mut failed = Ok(());
        each_extent(&state, group, &mut |extent| {
            let range = extent.start..extent.start + extent.len;
            // A part may be free already, if the extent was deleted since.
            rest.remove(range.clone());
            failed = match extent.tree_block {
                Some(generation) => self.tree_block(range, generation),
                None => self.data(group, range),
            };
            failed.is_ok()
        })?;
        failed?;
        for range in rest.iter() {
            self.unverified(group, range)?;
        }
        Ok(())
    }

    fn tree_block(&mut self, range: Range<u64>, generation: Transid) -> Result<()> {
        let store = self.manager.roots.node_store();
        let bytenr = Logical(range.start);
        let expect = Expect {
            generation: Some(generation),
            ..Expect::at(bytenr)
        };
        let len = (range.end - range.start) as usize;
        let whole = CopyRange {
            logical: bytenr,
            len,
            block_bytes: len,
        };
        let mut good =
            |_: usize, block: &[u8]| check_block(block, &store.context(), &expect).is_ok();
        self.copy(&whole, Some(&mut good))
    }

    fn data(&mut self, group: &BlockGroup, range: Range<u64>) -> Result<()> {
        let roots = &self.manager.roots;
        let sector = roots.sectorsize();
        for step in steps(group, range) {
            let sectors = ((step.end - step.start) / sector) as usize;
            let sums = data_csums(roots, Logical(step.start), sectors)?;
            let mut first = 0;
            while first < sectors {
                let has_sum = sums.has(first);
                let same = (first..sectors).take_while(|&at| sums.has(at) == has_sum);
                let end = first + same.count();
                let part = CopyRange {
                    logical: Logical(step.start + first as u64 * sector),
                    len: (end - first) * sector as usize,
                    block_bytes: sector as usize,
                };
                let mut good = |index: usize, bytes: &[u8]| sums.matches(first + index, bytes);
                let good: Option<GoodBlock<'_>> = if has_sum { Some(&mut good) } else { None };
                self.copy(&part, good)?;
                first = end;
            }
        }
        Ok(())
    }

    fn unverified(&mut self, group: &BlockGroup, range: Range<u64>) -> Result<()> {
        for step in steps(group, range) {
            let part = CopyRange {
                logical: Logical(step.start),
                len: (step.end - step.start) as usize,
                block_bytes: self.manager.roots.sectorsize() as usize,
            };
            self.copy(&part, None)?;
        }
        Ok(())
    }

    fn copy(&mut self, range: &CopyRange, good: Option<GoodBlock<'_>>) -> Result<()> {
        let pool = self.manager.roots.pool();
        if !pool.is_on_device(self.devid, range.logical, range.len as u64) {
            return Ok(());
        }
        let bad = pool.copy_to_replacement(self.devid, range, good)?;
        self.counts.uncorrectable += bad as u64;
        self.counts.copied_bytes += range.len as u64;
        if (self.keep_going)(range.len as u64) {
            Ok(())
        } else {
            Err(DeviceSetError::Ended.into())
        }
    }
}

/// Splits a range of a block group into steps. With a striped profile, each is on one stripe.
fn steps(group: &BlockGroup, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let is_striped = group
        .flags()
        .profile()
        .is_none_or(|profile| profile.is_striped());
    let step = if is_striped { STRIPE_LEN } else { STEP_BYTES };
    let first = group.start().0;
    let mut at = range.start;
    std::iter::from_fn(move || {
        let from = at;
        at = (first + ((from - first) / step + 1) * step).min(range.end);
        (from < range.end).then_some(from..at)
    })
}

/// Calls `each` with the extents of a block group, until it returns false.
fn each_extent(
    state: &CommittedState,
    group: &BlockGroup,
    each: &mut dyn FnMut(Extent) -> bool,
) -> Result<()> {
    let Some(view) = state.find_view(RootId::EXTENT_TREE)? else {
        return Ok(());
    };
    let nodesize = state.store().nodesize() as u64;
    let mut cursor = view.cursor().sequential();
    let mut more = cursor.seek(&Key::new(group.start().0, KeyType(0), 0))?;
    while more && let Some((key, bytes)) = cursor.current() {
        if key.objectid >= group.end().0 {
            break;
        }
        if let KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM = key.item_type
            && let Ok((item, _)) = ExtentHead::ref_from_prefix(bytes)
        {
            let generation = Transid(item.generation.get());
            let is_tree_block = item.flags().contains(ExtentFlags::TREE_BLOCK);
            let extent = Extent {
                start: key.objectid,
                len: if is_tree_block { nodesize } else { key.offset },
                tree_block: is_tree_block.then_some(generation),
            };
            if !each(extent) {
                break;
            }
        }
        more = cursor.advance()?;
    }
    Ok(())
}

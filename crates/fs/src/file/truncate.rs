//! Changing a file's size.
//!
//! Shrinking drops extents in bounded steps, from the end downward. Each step sets the size in the item to
//! the new end of the extents, so an interruption only leaves a longer file. Readers see the new size from
//! the first step on.
//!
//! Data beyond the end in the last sector is zeroed by rewriting that sector, as in the kernel.

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{InodeFlags, InodeItem};
use ubtrfs_storage::{EditEstimate, FREEING_ITEMS, FileId, Reservation};

use super::Files;
use super::change::{end_of, note_write, read_file, refuse_flags};
use super::extent::{Extent, InlineExtent};
use super::extent_edit::ExtentEdit;
use super::read::Reader;
use super::write_back::enter_extent_edit;
use crate::error::Result;
use crate::inode::{DelallocReservation, FileExtentsState, Inode, WriteBuffer, put_inode};

/// The most extents that one step drops.
const STEP: usize = 512;
/// The most extents that one step drops on a full volume.
const STEP_WHEN_FULL: usize = (FREEING_ITEMS / EXTENT_ITEMS) as usize;
/// Items per extent, including the remainder of a cut one.
const EXTENT_ITEMS: u64 = 4;

impl Files {
    /// Sets the size of a regular file. A longer file is extended with zeros.
    pub(crate) fn truncate(&self, id: FileId, size: u64) -> Result<()> {
        self.truncate_unless(InodeFlags::IMMUTABLE | InodeFlags::APPEND, id, size)
    }

    /// Sets the size of a file that is open for writing. As in the kernel, it may have become immutable
    /// since.
    pub(crate) fn truncate_open(&self, id: FileId, size: u64) -> Result<()> {
        self.truncate_unless(InodeFlags::APPEND, id, size)
    }

    /// Sets the size of a file regardless of its flags, for a caller that undoes its own write.
    pub(crate) fn take_back_to(&self, id: FileId, size: u64) -> Result<()> {
        self.truncate_unless(InodeFlags::empty(), id, size)
    }

    fn truncate_unless(&self, guards: InodeFlags, id: FileId, size: u64) -> Result<()> {
        end_of(size, 0)?;
        nonblocking::check()?;
        let inode = self.inodes.inode_to_change(id)?;
        refuse_flags(&inode, guards)?;
        let sector = WriteBuffer::need_bytes(0, 1, self.roots.sectorsize());
        let cost = |step| EditEstimate::neighbours(EXTENT_ITEMS * step as u64);
        let (delalloc, step) = match self.inodes.reserve_delalloc(id.root, sector, cost(STEP)) {
            Err(error) if error.is_no_space() => {
                // Shrinking must be possible on a full volume. Without data space, the last sector is not
                // zeroed.
                let delalloc = DelallocReservation::make(
                    &self.inodes,
                    id.root,
                    0,
                    cost(STEP_WHEN_FULL).with_global_reserve(),
                )?;
                (delalloc, STEP_WHEN_FULL)
            }
            delalloc => (delalloc?, STEP),
        };
        let mut extents = inode.extents.lock()?;
        // The last check: from here on the change is carried out, and buffered data beyond the end is dropped
        // first.
        inode.tree.check_writable()?;
        let old_size = {
            let state = inode.lock.read();
            state.buffer.size_over(read_file(&inode)?.size.get())
        };
        if size > old_size {
            self.grow_locked(&inode, &mut extents, size, delalloc)?;
            return self.note_resize(&inode);
        }
        self.shrink(&inode, &mut extents, (size, step), delalloc)
    }

    fn note_resize(&self, inode: &Inode) -> Result<()> {
        let _state = inode.lock.write();
        let mut item = read_file(inode)?;
        note_write(&mut item);
        let txn = self.join_to_finish_change(inode, Reservation::already_made())?;
        put_inode(&txn, inode, &mut item);
        Ok(())
    }

    fn shrink(
        &self,
        inode: &Arc<Inode>,
        extents: &mut FileExtentsState,
        (size, step): (u64, usize),
        mut delalloc: DelallocReservation,
    ) -> Result<()> {
        let tail = self.kept_of_last_sector(inode, size)?;
        let sectorsize = self.roots.sectorsize();
        let mut state = inode.lock.write();
        let mut item = read_file(inode)?;
        let forgotten = state.buffer.forget(size..u64::MAX, sectorsize);
        if item.size.get() < size {
            // The size was due to buffered data, which may now end before the new size. On a full volume, the
            // reservation of the dropped data is all there is for rewriting the old last sector.
            drop(state);
            delalloc.join(forgotten);
            self.grow_locked(inode, extents, size, delalloc)?;
            state = inode.lock.write();
            item = read_file(inode)?;
        } else if let Some((start, kept)) = tail
            && delalloc.data_bytes() > 0
            && !state.buffer.touches(start..start + sectorsize)
        {
            let files = &self.inodes.dirty;
            let sector = delalloc.split(delalloc.data_bytes());
            let pool = files.buffer_pool();
            state.buffer.write(pool, start, &kept, sectorsize, sector);
            files.add(inode);
        }
        // Readers use the new size while the steps below run.
        state.buffer.set_cut(Some(size));
        let mut outcome = self.shrink_step(inode, &mut item, size, step);
        while let Ok(false) = outcome {
            drop(state);
            let next = EditEstimate::neighbours(EXTENT_ITEMS * step as u64).with_global_reserve();
            outcome = self.commit_between_steps(next).map(|()| false);
            state = inode.lock.write();
            if outcome.is_ok() {
                outcome = read_file(inode)
                    .and_then(|mut item| self.shrink_step(inode, &mut item, size, step));
            }
        }
        state.buffer.set_cut(None);
        outcome.map(drop)
    }

    /// Drops the last extents beyond `size`, at most `step`. Returns whether these were all.
    fn shrink_step(
        &self,
        inode: &Inode,
        item: &mut InodeItem,
        size: u64,
        step: usize,
    ) -> Result<bool> {
        let sectorsize = self.roots.sectorsize();
        let keep = size.next_multiple_of(sectorsize);
        let (mut extent_edit, all) = ExtentEdit::load_tail(inode, sectorsize, keep, step)?;
        let lowest = extent_edit
            .extents()
            .next()
            .map_or(0, |(range, _)| range.start);
        let is_done = all || lowest < keep;
        let from = if is_done { keep } else { lowest };
        extent_edit.clear(from..u64::MAX)?;
        let txn = self.join_to_finish_change(inode, Reservation::already_made())?;
        let generation = txn.transid().0;
        if is_done {
            extent_edit.cut_inline(size, generation);
            note_write(item);
            item.size = size.into();
        } else {
            item.size = item.size.get().min(from).into();
        }
        enter_extent_edit(&txn, inode, &extent_edit, item);
        Ok(is_done)
    }

    /// Returns the kept bytes of the last sector, with their offset. Returns None if no data beyond them must
    /// be zeroed on disk.
    fn kept_of_last_sector(&self, inode: &Inode, size: u64) -> Result<Option<(u64, Vec<u8>)>> {
        let sectorsize = self.roots.sectorsize();
        let start = size - size % sectorsize;
        if start == size {
            return Ok(None);
        }
        let extent_edit = ExtentEdit::load(inode, sectorsize, start..start + sectorsize)?;
        let hit = extent_edit.overlapping(start..start + sectorsize).next();
        let flags = match hit {
            None => return Ok(None),
            Some((_, Extent::Inline(inline))) if inline.compression == Compression::None => {
                return Ok(None);
            }
            Some((_, extent)) if !extent.has_data() => return Ok(None),
            Some(_) => {
                let _state = inode.lock.read();
                read_file(inode)?.flags()
            }
        };
        let mut kept = vec![0; (size - start) as usize];
        let mut reader = Reader::new(self, &inode.tree, inode.id, flags);
        reader.plan(start, 0..kept.len(), &mut kept)?;
        reader.run(&mut kept)?;
        Ok(Some((start, kept)))
    }
}

impl ExtentEdit {
    /// Shortens uncompressed inline data. Compressed data stays as it is until it is rewritten.
    fn cut_inline(&mut self, size: u64, generation: u64) {
        let first = self.extents().next();
        if let Some((range, Extent::Inline(inline))) = first
            && inline.compression == Compression::None
            && inline.ram_bytes > size
            && size > 0
        {
            let cut = Extent::Inline(InlineExtent {
                generation,
                ram_bytes: size,
                compression: Compression::None,
                stored: inline.stored[..size as usize].into(),
            });
            let start = range.start;
            self.set(start, cut);
        }
    }
}

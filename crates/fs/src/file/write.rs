//! Writing: into the buffer, or directly to the devices if the data is large.
//!
//! Space and metadata are reserved first, so that ENOSPC is an error of this call and not of a later one. The
//! size in the inode item does not move here, see `write_back`.
//!
//! Locks: the inode's for the copy into the buffer. A direct write holds the file's extents while it stores
//! the data.
//! Not here: clearing setuid bits, which the caller has done; writing the buffer back (`write_back`).

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeFlags, InodeItem};
use ubtrfs_storage::{FileId, Reservation, lock};

use super::Files;
use super::change::{end_of, note_write, read_file};
use super::plan::Job;
use super::sync::{FILES_AT_ONCE, must_sync};
use crate::error::{Error, Result};
use crate::inode::{
    DelallocReservation, DirtyRanges, FileExtentsState, Inode, InodeState, WriteBuffer,
    look_at_inode, note_times,
};

/// From this size on, whole sectors bypass the buffer.
const LARGE_BYTES: usize = 1 << 20;
/// The bytes that one direct write-back stores and enters.
const PAST_BUFFER_BYTES: usize = 32 << 20;
/// How often a write without space writes back the data that others have buffered beyond the end of the file.
const TRIES_AT_END: u32 = 16;

/// The offset of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteTarget {
    At(u64),
    End,
}

impl WriteTarget {
    fn offset(self, state: &InodeState, item: &InodeItem) -> u64 {
        match self {
            WriteTarget::At(offset) => offset,
            WriteTarget::End => state.buffer.size_over(item.size.get()),
        }
    }
}

/// The reservation of a buffered write: for its own bytes, and ahead for sequential writes after it.
#[derive(Debug)]
struct WriteSpace {
    need: DelallocReservation,
    ahead: DelallocReservation,
}

impl Files {
    /// Writes `bytes` at `offset` of a regular file. Either all or none are written, unless a device fails.
    /// Like the other writes here, it returns only when the data is durable if the file has the flag SYNC.
    pub(crate) fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        end_of(offset, bytes.len() as u64)?;
        let inode = self.inodes.inode_to_change(id)?;
        let syncs = self.admit_write(&inode)? && !bytes.is_empty();
        if bytes.len() >= LARGE_BYTES && self.is_whole_sectors(offset, bytes) {
            self.write_large(&inode, offset, bytes)?;
        } else {
            self.write_buffered(&inode, WriteTarget::At(offset), bytes)?;
        }
        if syncs { self.fsync(&inode) } else { Ok(()) }
    }

    /// Writes at the end of the file, atomically with finding that end. Returns the offset.
    pub(crate) fn append(&self, id: FileId, bytes: &[u8]) -> Result<u64> {
        let inode = self.inodes.inode_to_change(id)?;
        let syncs = self.admit_write(&inode)? && !bytes.is_empty();
        let offset = self.write_buffered(&inode, WriteTarget::End, bytes)?;
        if syncs {
            self.fsync(&inode)?;
        }
        Ok(offset)
    }

    /// Writes whole sectors directly to the devices. Without the flag SYNC the data is not durable when it
    /// returns.
    pub(crate) fn write_direct(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        end_of(offset, bytes.len() as u64)?;
        if !self.is_whole_sectors(offset, bytes) {
            return Err(Error::Unaligned);
        }
        let inode = self.inodes.inode_to_change(id)?;
        let syncs = self.admit_write(&inode)? && !bytes.is_empty();
        self.write_large(&inode, offset, bytes)?;
        if syncs {
            return self.fsync(&inode);
        }
        // The write may have fallen back to the buffer.
        let is_buffered = lock::read(&inode.lock)?.buffer.is_dirty();
        if is_buffered {
            self.write_back(&inode)
        } else {
            Ok(())
        }
    }

    /// Checks that a file without fs-verity is written to. Returns the same as `syncs_writes`.
    fn admit_write(&self, inode: &Inode) -> Result<bool> {
        let flags = look_at_inode(&inode.tree, inode.id, |item| item.flags())?;
        if flags.contains(InodeFlags::RO_VERITY) {
            Err(Error::NotPermitted(inode.id))
        } else {
            must_sync(flags)
        }
    }

    fn is_whole_sectors(&self, offset: u64, bytes: &[u8]) -> bool {
        let sectorsize = self.roots.sectorsize();
        offset.is_multiple_of(sectorsize) && (bytes.len() as u64).is_multiple_of(sectorsize)
    }

    fn write_large(&self, inode: &Arc<Inode>, offset: u64, bytes: &[u8]) -> Result<()> {
        nonblocking::check()?;
        let mut at = offset;
        for part in bytes.chunks(PAST_BUFFER_BYTES) {
            if !self.write_past_buffer(inode, at, part)? {
                self.write_buffered(inode, WriteTarget::At(at), part)?;
            }
            at += part.len() as u64;
        }
        self.inodes.flush_lazy_times();
        Ok(())
    }

    /// Writes `bytes` directly to the devices. Returns false if they must go through the buffer instead.
    fn write_past_buffer(&self, inode: &Arc<Inode>, offset: u64, bytes: &[u8]) -> Result<bool> {
        let delalloc = match self.inodes.reserve_delalloc(
            inode.id.root,
            bytes.len() as u64,
            self.inodes.cost_of_times(),
        ) {
            Err(error) if error.is_no_space() && self.may_overwrite(inode)? => {
                DelallocReservation::nocow(
                    &self.inodes,
                    inode.id.root,
                    bytes.len() as u64,
                    self.inodes.cost_of_times(),
                )?
            }
            delalloc => delalloc?,
        };
        let mut extents = inode.extents.lock()?;
        let has_data_before = {
            let state = lock::read(&inode.lock)?;
            let size = read_file(inode)?.size.get();
            let buffered = state.buffer.next_data(0);
            offset + bytes.len() as u64 > size && buffered.is_some_and(|at| at < offset)
        };
        if has_data_before {
            // WRITEBACK-2: the size will move beyond this older data, so it needs extents first. The next
            // sync reports a loss.
            let _ = self.write_back_locked(inode, &mut extents);
        }
        let job = Job::from_caller(self, inode, &mut extents, offset, bytes, delalloc)?;
        match job {
            Some(job) => self.run_jobs(vec![job]).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns whether a part of the file may be overwritten in place (nocow).
    pub(super) fn may_overwrite(&self, inode: &Inode) -> Result<bool> {
        let _state = lock::read(&inode.lock)?;
        let flags = read_file(inode)?.flags();
        Ok(flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC))
    }

    /// Writes through the buffer. Returns the offset of the bytes.
    fn write_buffered(&self, inode: &Arc<Inode>, target: WriteTarget, bytes: &[u8]) -> Result<u64> {
        if self.inodes.dirty.is_over_budget() {
            nonblocking::check()?;
        }
        // The fast path: the space was reserved by an earlier write of this file.
        let ahead_bytes = match self.buffer_reserved(inode, target, bytes)? {
            Ok(offset) => {
                self.throttle_dirty();
                return Ok(offset);
            }
            Err(ahead_bytes) => ahead_bytes,
        };
        let sectorsize = self.roots.sectorsize();
        let worst = match target {
            WriteTarget::At(offset) => offset,
            WriteTarget::End => sectorsize - 1,
        };
        let need_bytes = WriteBuffer::need_bytes(worst, bytes.len() as u64, sectorsize);
        let space = match self.reserve_with_more(inode.id.root, need_bytes, ahead_bytes) {
            Err(error) if error.is_no_space() && self.may_overwrite(inode)? => {
                let need = DelallocReservation::nocow(
                    &self.inodes,
                    inode.id.root,
                    need_bytes,
                    self.inodes.cost_of_times(),
                )?;
                return self.write_nocow_only(inode, target, bytes, need);
            }
            space => space?,
        };
        let offset = self.buffer(inode, target, bytes, space)?;
        self.throttle_dirty();
        Ok(offset)
    }

    fn reserve_with_more(
        &self,
        subvolume: RootId,
        need_bytes: u64,
        ahead_bytes: u64,
    ) -> Result<WriteSpace> {
        if ahead_bytes > 0 && !self.inodes.transactions()?.queues.data.is_busy() {
            match DelallocReservation::make(
                &self.inodes,
                subvolume,
                need_bytes + ahead_bytes,
                self.inodes.cost_of_times(),
            ) {
                Err(error) if error.is_no_space() => {}
                delalloc => {
                    let mut need = delalloc?;
                    let ahead = need.split(ahead_bytes);
                    return Ok(WriteSpace { need, ahead });
                }
            }
        }
        Ok(WriteSpace {
            need: self.inodes.reserve_delalloc(
                subvolume,
                need_bytes,
                self.inodes.cost_of_times(),
            )?,
            ahead: DelallocReservation::default(),
        })
    }

    /// Buffers `bytes` if their space has been reserved already. Otherwise returns as an inner error the
    /// bytes to reserve ahead.
    fn buffer_reserved(
        &self,
        inode: &Arc<Inode>,
        target: WriteTarget,
        bytes: &[u8],
    ) -> Result<std::result::Result<u64, u64>> {
        let sectorsize = self.roots.sectorsize();
        let mut state = lock::write(&inode.lock)?;
        let mut item = read_file(inode)?;
        let offset = target.offset(&state, &item);
        let end = end_of(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(Ok(offset));
        }
        if !state.buffer.is_reserved(offset..end, sectorsize) {
            return Ok(Err(state.buffer.wants_ahead(offset..end, sectorsize)));
        }
        self.enter_write(inode, &mut item)?;
        state.buffer.write_reserved(offset, bytes, sectorsize);
        Ok(Ok(offset))
    }

    /// Buffers `bytes` with the space that is reserved for them.
    fn buffer(
        &self,
        inode: &Arc<Inode>,
        target: WriteTarget,
        bytes: &[u8],
        space: WriteSpace,
    ) -> Result<u64> {
        let mut state = lock::write(&inode.lock)?;
        let sectorsize = self.roots.sectorsize();
        let mut item = read_file(inode)?;
        let offset = target.offset(&state, &item);
        let end = end_of(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(offset);
        }
        let files = &self.inodes.dirty;
        // DIRTY-1: a file with buffered data is in the list. It is added before `enter_write` checks for a
        // read-only subvolume, as a change to read-only writes back all files in the list.
        let is_listed = state.buffer.is_dirty();
        if !is_listed {
            files.add(inode);
        }
        if let Err(error) = self.enter_write(inode, &mut item) {
            if !is_listed {
                files.remove(inode.id);
            }
            return Err(error);
        }
        let buffer = &mut state.buffer;
        buffer.write(files.buffer_pool(), offset, bytes, sectorsize, space.need);
        if space.ahead.data_bytes() > 0 {
            buffer.reserve_ahead(end, sectorsize, space.ahead);
        }
        Ok(offset)
    }

    fn enter_write(&self, inode: &Inode, item: &mut InodeItem) -> Result<()> {
        note_write(item);
        let txn = self.join_to_change_file(inode, Reservation::already_made())?;
        note_times(&txn, inode, item);
        Ok(())
    }

    /// Overwrites a file in place (nocow), which needs no free space. Bytes in dirty sectors go into the
    /// buffer, as those sectors have their reservation. The others go straight to the devices, so that a
    /// failure loses no data of other writers.
    ///
    /// Errors: no space, with nothing written.
    pub(super) fn write_nocow_only(
        &self,
        inode: &Arc<Inode>,
        target: WriteTarget,
        bytes: &[u8],
        need: DelallocReservation,
    ) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let mut extents = inode.extents.lock()?;
        let (mut state, mut item, offset) =
            self.lock_for_own(inode, &mut extents, target, bytes)?;
        if bytes.is_empty() {
            return Ok(offset);
        }
        let end = offset + bytes.len() as u64;
        let mut own = DirtyRanges::new(self.inodes.dirty.buffer_pool());
        own.write(offset, bytes);
        let buffered = state.buffer.sectors_in(offset..end, sectorsize);
        for sectors in &buffered {
            own.clear(sectors.clone());
        }
        if own.is_empty() {
            self.enter_write(inode, &mut item)?
        } else {
            let job = Job::of_own(self, inode, &mut state, &mut extents, (item, own, need));
            drop(state);
            self.run_jobs(vec![job])?;
            state = lock::write(&inode.lock)?;
        }
        for sectors in buffered {
            let part = sectors.start.max(offset)..sectors.end.min(end);
            let part_bytes = &bytes[(part.start - offset) as usize..(part.end - offset) as usize];
            // No thread has written these sectors back since: that requires the lock on the extents.
            let buffer = &mut state.buffer;
            buffer.write_reserved(part.start, part_bytes, sectorsize);
        }
        Ok(offset)
    }

    /// Locks a file for a write that bypasses the buffer. Returns its item and the offset of the write.
    ///
    /// Errors: no space, if the write would grow the file while other threads keep buffering data beyond the
    /// end. The size must not pass data that has no extents (WRITEBACK-2).
    fn lock_for_own<'a>(
        &self,
        inode: &'a Arc<Inode>,
        extents: &mut FileExtentsState,
        target: WriteTarget,
        bytes: &[u8],
    ) -> Result<(RwLockWriteGuard<'a, InodeState>, InodeItem, u64)> {
        for _ in 0..TRIES_AT_END {
            let state = lock::write(&inode.lock)?;
            let item = read_file(inode)?;
            let offset = target.offset(&state, &item);
            let size = item.size.get();
            if end_of(offset, bytes.len() as u64)? <= size || state.buffer.size_over(size) <= size {
                return Ok((state, item, offset));
            }
            drop(state);
            // The next sync reports a loss.
            let _ = self.write_back_locked(inode, extents);
        }
        Err(Error::NoSpace)
    }

    /// Writes files back until the dirty data is within its budget. It takes many files at a time, as each
    /// may be small. The next sync of a file reports its errors.
    fn throttle_dirty(&self) {
        self.inodes.flush_lazy_times();
        if nonblocking::is_set() {
            return;
        }
        let dirty = &self.inodes.dirty;
        if !dirty.is_over_budget() {
            return;
        }
        let _waiting = self
            .inodes
            .transactions()
            .map(|manager| manager.counters.wait_for_buffer());
        let mut last = None;
        while dirty.is_over_budget() {
            let some = dirty.next(last, FILES_AT_ONCE);
            last = some.last().map(|inode| inode.id);
            if last.is_none() {
                return;
            }
            let log = |error| tracing::debug!(%error, "write-back for room in the buffer");
            self.write_back_files(&some, &mut |_, error| log(error))
                .unwrap_or_else(log);
        }
    }
}

//! Writing: into the buffer, or past it if there is much of it.
//!
//! Space and metadata are reserved first, so that no space is this call's error and not a later one's. The
//! size in the inode item does not move here, see `write_back`.
//!
//! Locks: the inode's for the copy; past the buffer, the file's extents while the data is stored.
//! Not here: setuid bits, which the caller has cleared; what becomes of the buffer (`write_back`).

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use ubtrfs_device::nonblocking;
use ubtrfs_format::item::{InodeFlags, InodeItem};
use ubtrfs_transaction::{FileId, Reservation, lock};

use super::Files;
use super::change::{end_of, note_write, read_file};
use super::plan::Job;
use super::sync::FILES_AT_ONCE;
use crate::error::{Error, Result};
use crate::inode::{
    DelallocReservation, DirtyRanges, FileExtentsState, Inode, InodeState, WriteBuffer, note_times,
};

/// From this size on, whole sectors are not worth buffering.
const LARGE_BYTES: usize = 1 << 20;
/// The bytes that are stored and entered at once.
const PAST_BUFFER_BYTES: usize = 32 << 20;
/// How often a write that finds no space writes back what others have buffered behind the file's end.
const TRIES_AT_END: u32 = 16;

/// Where a write goes.
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

/// The reservation of a buffered write: for itself, and for what may follow it.
#[derive(Debug)]
struct WriteSpace {
    need: DelallocReservation,
    ahead: DelallocReservation,
}

impl Files {
    /// Writes `bytes` at `offset` of a regular file, all or nothing unless the devices fail. A file that has the flag
    /// SYNC is durable when this returns, as after each of the following.
    pub(crate) fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        end_of(offset, bytes.len() as u64)?;
        let inode = self.inodes.inode_to_change(id)?;
        let syncs = self.admit_write(&inode)? && !bytes.is_empty();
        if bytes.len() >= LARGE_BYTES && self.is_whole_sectors(offset, bytes) {
            self.write_large(&inode, offset, bytes)?;
        } else {
            self.write_buffered(&inode, WriteTarget::At(offset), bytes)?;
        }
        match syncs {
            true => self.fsync(&inode),
            false => Ok(()),
        }
    }

    /// Writes at the end of the file, wherever that is when it is this call's turn. Returns where that was.
    pub(crate) fn append(&self, id: FileId, bytes: &[u8]) -> Result<u64> {
        let inode = self.inodes.inode_to_change(id)?;
        let syncs = self.admit_write(&inode)? && !bytes.is_empty();
        let offset = self.write_buffered(&inode, WriteTarget::End, bytes)?;
        if syncs {
            self.fsync(&inode)?;
        }
        Ok(offset)
    }

    /// Writes whole sectors past the buffer: when it returns the devices have the data, though not durably without
    /// the flag SYNC.
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
        let is_buffered = lock::read(&inode.lock)?.buffer.is_dirty();
        match is_buffered {
            true => self.write_back(&inode),
            false => Ok(()),
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

    /// Writes `bytes` past the buffer. Returns false if the buffer must take them after all.
    fn write_past_buffer(&self, inode: &Arc<Inode>, offset: u64, bytes: &[u8]) -> Result<bool> {
        let delalloc = match self
            .inodes
            .reserve_delalloc(bytes.len() as u64, self.inodes.cost_of_times())
        {
            Err(error) if error.is_no_space() && self.may_overwrite(inode)? => {
                DelallocReservation::nocow(
                    &self.inodes,
                    bytes.len() as u64,
                    self.inodes.cost_of_times(),
                )?
            }
            delalloc => delalloc?,
        };
        let mut extents = lock::lock(&inode.extents)?;
        let has_data_before = {
            let state = lock::read(&inode.lock)?;
            let size = read_file(inode)?.size.get();
            let buffered = state.buffer.next_data(0);
            offset + bytes.len() as u64 > size && buffered.is_some_and(|at| at < offset)
        };
        if has_data_before {
            // WRITEBACK-2: the size moves beyond data that was written before. The next sync reports a loss.
            let _ = self.write_back_locked(inode, &mut extents);
        }
        let job = Job::from_caller(self, inode, &mut extents, offset, bytes, delalloc)?;
        match job {
            Some(job) => self.run_jobs(vec![job]).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns whether some of the file may be written in place (nocow).
    pub(super) fn may_overwrite(&self, inode: &Inode) -> Result<bool> {
        let _state = lock::read(&inode.lock)?;
        let flags = read_file(inode)?.flags();
        Ok(flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC))
    }

    /// Returns where the bytes went.
    fn write_buffered(&self, inode: &Arc<Inode>, target: WriteTarget, bytes: &[u8]) -> Result<u64> {
        if self.inodes.dirty.is_over_budget() {
            nonblocking::check()?;
        }
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
        let space = match self.reserve_with_more(need_bytes, ahead_bytes) {
            Err(error) if error.is_no_space() && self.may_overwrite(inode)? => {
                let need = DelallocReservation::nocow(
                    &self.inodes,
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

    fn reserve_with_more(&self, need_bytes: u64, ahead_bytes: u64) -> Result<WriteSpace> {
        if ahead_bytes > 0 && !self.inodes.transactions()?.queues.data.is_busy() {
            match DelallocReservation::make(
                &self.inodes,
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
            need: self
                .inodes
                .reserve_delalloc(need_bytes, self.inodes.cost_of_times())?,
            ahead: DelallocReservation::default(),
        })
    }

    /// Puts bytes into the buffer if their space has been reserved already. If not, says how much should be reserved
    /// ahead with them.
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

    /// Puts bytes into the buffer.
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
        // DIRTY-1: one that has data is listed. Before it is asked whether the subvolume is read-only: a change to that
        // writes back what is listed.
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
        buffer.write(files, offset, bytes, sectorsize, space.need);
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

    /// Overwrites a file in place (nocow), for which there need be no space. Sectors that are dirty have their reservation:
    /// they take their part in the buffer. The rest goes to the device by itself, so that a refusal concerns nothing that
    /// others have written.
    ///
    /// Errors: no space, and then nothing of it is written.
    pub(super) fn write_nocow_only(
        &self,
        inode: &Arc<Inode>,
        target: WriteTarget,
        bytes: &[u8],
        need: DelallocReservation,
    ) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let mut extents = lock::lock(&inode.extents)?;
        let (mut state, mut item, offset) =
            self.lock_for_own(inode, &mut extents, target, bytes)?;
        if bytes.is_empty() {
            return Ok(offset);
        }
        let end = offset + bytes.len() as u64;
        let mut own = DirtyRanges::new(self.inodes.dirty.buffer_pool());
        own.write(offset, bytes);
        let mut buffered = state.buffer.sectors(sectorsize);
        buffered.retain(|sectors| sectors.start < end && offset < sectors.end);
        for sectors in &buffered {
            own.clear(sectors.clone());
        }
        match own.is_empty() {
            true => self.enter_write(inode, &mut item)?,
            false => {
                let job = Job::of_own(self, inode, &mut state, &mut extents, (item, own, need));
                drop(state);
                self.run_jobs(vec![job])?;
                state = lock::write(&inode.lock)?;
            }
        }
        for sectors in buffered {
            let part = sectors.start.max(offset)..sectors.end.min(end);
            let part_bytes = &bytes[(part.start - offset) as usize..(part.end - offset) as usize];
            // No thread has written them back since: that takes the lock of the extents.
            let buffer = &mut state.buffer;
            buffer.write_reserved(part.start, part_bytes, sectorsize);
        }
        Ok(offset)
    }

    /// Locks a file for a write that does not wait for what is buffered. Returns its item and where the bytes go.
    ///
    /// Errors: no space, if the write would make the file longer and other threads go on buffering data behind the end.
    /// The size must not precede the extents of that data (WRITEBACK-2).
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
            // A loss is told by the next sync.
            let _ = self.write_back_locked(inode, extents);
        }
        Err(Error::NoSpace)
    }

    /// Writes back while more data is dirty than may be: many files at once, as each may be small. Errors are reported by
    /// the next sync of a file.
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
            if let Err(error) = self.write_back_files(&some) {
                tracing::debug!(%error, "write-back for room in the buffer");
            }
        }
    }
}

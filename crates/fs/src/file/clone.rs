//! Sharing extents between files or within one: clone, dedupe, copy.
//!
//! A clone refers to the same extents, in whole sectors. Inline data is copied. Cloning runs in steps, and
//! both files are sound after every step.
//!
//! Invariants
//! - INLINE-COPY-1: the destination keeps its old extent until the copy of inline data has its own. Each
//!   commit has either the old bytes or the new ones.
//!
//! Locks: the extents of both files, in the order of `FileId`; only the destination's inode lock.
//! Not here: the permission checks, and the check that both files are in one mount.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeFlags, InodeItem};
use ubtrfs_storage::{EditEstimate, FileId, Reservation, lock};

use super::Files;
use super::change::{end_of, note_write, read_file, refuse_flags};
use super::extent::{DiskPart, Extent};
use super::extent_edit::ExtentEdit;
use super::read::Reader;
use super::write_back::{GROW_SECTORS, enter_extent_edit};
use crate::error::{Error, Result};
use crate::inode::{DelallocReservation, Inode, LockedExtents, WriteBuffer, note_times};

/// The most extents of either file that one step changes.
const STEP: usize = 512;
/// The smallest limit of a step: for ranges with fewer extents, or on a volume without room for more.
const LEAST_STEP: usize = 4;
/// Items per extent: those deleted and inserted, each with its reference, and the remainders of cut extents.
const EXTENT_ITEMS: u64 = 8;
const COMPARE_BYTES: usize = 128 << 10;
const COPY_BYTES: usize = 1 << 20;
/// While the source has buffered data, copies up to this length do not share extents.
const COPIED_BYTES: u64 = 32 << 10;

/// A range of the source and its place in the destination, perhaps in the same file.
#[derive(Clone, Copy, Debug)]
struct Share {
    from: u64,
    to: u64,
    len: u64,
}

/// Two files with their extents locked, perhaps the same file.
struct Pair<'a> {
    src: &'a Arc<Inode>,
    dst: &'a Arc<Inode>,
    dst_extents: LockedExtents<'a>,
    src_extents: Option<LockedExtents<'a>>,
}

impl<'a> Pair<'a> {
    fn lock(src: &'a Arc<Inode>, dst: &'a Arc<Inode>) -> Result<Pair<'a>> {
        let (src_extents, dst_extents) = if src.id == dst.id {
            (None, dst.extents.lock()?)
        } else if src.id < dst.id {
            let src_extents = src.extents.lock()?;
            (Some(src_extents), dst.extents.lock()?)
        } else {
            let dst_extents = dst.extents.lock()?;
            (Some(src.extents.lock()?), dst_extents)
        };
        Ok(Pair {
            src,
            dst,
            dst_extents,
            src_extents,
        })
    }

    /// Writes back the buffered data of both files.
    ///
    /// Errors: the thread must not wait, and there is buffered data.
    fn write_back(&mut self, files: &Files) -> Result<()> {
        if nonblocking::is_set() {
            for inode in [self.src, self.dst] {
                if lock::read(&inode.lock)?.buffer.is_dirty() {
                    nonblocking::check()?;
                }
            }
            return Ok(());
        }
        if let Some(extents) = &mut self.src_extents {
            files.write_back_locked(self.src, extents)?;
        }
        files.write_back_locked(self.dst, &mut self.dst_extents)
    }

    /// NOCOW-1
    fn forget(&mut self) {
        self.dst_extents.forget();
        if let Some(extents) = &mut self.src_extents {
            extents.forget();
        }
    }
}

/// Returns the estimate for one step. All its items are neighbours in the destination.
fn cost_of(step: usize) -> EditEstimate {
    EditEstimate::neighbours(EXTENT_ITEMS * step as u64)
}

/// Returns a file's flags and size.
fn facts(inode: &Inode) -> Result<(InodeFlags, u64)> {
    let state = lock::read(&inode.lock)?;
    let item = read_file(inode)?;
    Ok((item.flags(), state.buffer.size_over(item.size.get())))
}

impl Files {
    /// Clones: makes `len` bytes of `dst` from `dst_offset` on share the extents of `src` from `src_offset`
    /// on. A `len` of 0 means up to the end of `src`. Returns the number of cloned bytes.
    pub(crate) fn clone_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<u64> {
        let (src, dst) = (self.inodes.get(src)?, self.inodes.inode_to_change(dst)?);
        refuse_flags(&dst, InodeFlags::IMMUTABLE)?;
        let syncs = self.syncs_shares(&src, &dst)?;
        let share = Share {
            from: src_offset,
            to: dst_offset,
            len,
        };
        let (mut delalloc, step, mut pair) = self.begin_share(&src, &dst, share)?;
        let share = self.check_clone(&pair, share)?;
        if share.len == 0 {
            return Ok(0);
        }
        let dst_size = facts(&dst)?.1;
        if share.to > dst_size {
            nonblocking::check()?;
            let delalloc = delalloc.split(GROW_SECTORS * self.roots.sectorsize());
            self.grow_locked(&dst, &mut pair.dst_extents, share.to, delalloc)?;
        }
        self.share(&mut pair, share, step, delalloc, note_write)?;
        drop(pair);
        if syncs {
            self.fsync(&dst)?;
        }
        Ok(share.len)
    }

    /// Deduplicates: makes two ranges with equal bytes share extents. Returns false if the bytes differ.
    ///
    /// An incomplete last sector is neither compared nor shared, unless the range ends with both files. Times
    /// do not change.
    pub(crate) fn dedupe_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<bool> {
        nonblocking::check()?;
        let (src, dst) = (self.inodes.get(src)?, self.inodes.inode_to_change(dst)?);
        refuse_flags(&dst, InodeFlags::IMMUTABLE)?;
        let syncs = self.syncs_shares(&src, &dst)?;
        let share = Share {
            from: src_offset,
            to: dst_offset,
            len,
        };
        let (delalloc, step, mut pair) = self.begin_share(&src, &dst, share)?;
        if len == 0 {
            return Ok(true);
        }
        let share = self.check_dedupe(&pair, share)?;
        if !self.holds_same(&pair, share)? {
            return Ok(false);
        }
        self.share(&mut pair, share, step, delalloc, |_| {})?;
        drop(pair);
        if syncs {
            self.fsync(&dst)?;
        }
        Ok(true)
    }

    /// Returns whether the shared data must be durable: as in the kernel, if either file has the flag SYNC.
    fn syncs_shares(&self, src: &Inode, dst: &Inode) -> Result<bool> {
        Ok(self.syncs_writes(src)? || self.syncs_writes(dst)?)
    }

    /// Copies bytes from file to file, and shares extents where that is possible and worth it. Returns the
    /// number of copied bytes. It is less than `len` only at the source's end, or if the rest failed.
    pub(crate) fn copy_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let src_size = self.inodes.attr(src)?.size;
        let len = len.min(src_size.saturating_sub(src_offset));
        if len == 0 {
            return Ok(0);
        }
        end_of(dst_offset, len)?;
        refuse_flags(&*self.inodes.inode_to_change(dst)?, InodeFlags::IMMUTABLE)?;
        if src == dst && overlap(src_offset, dst_offset, len) {
            return Err(Error::Invalid("ranges overlap"));
        }
        let mut done = 0;
        let whole = len - len % sectorsize;
        // A partial sector can be shared only if both files end with it.
        let ends = src_offset + len == src_size && dst_offset + len >= self.inodes.attr(dst)?.size;
        let shared = if ends { len } else { whole };
        let aligned =
            src_offset.is_multiple_of(sectorsize) && dst_offset.is_multiple_of(sectorsize);
        // Sharing needs the data written back first. For a small copy of buffered data that costs more than
        // copying.
        let copies = whole == 0 || len <= COPIED_BYTES && self.is_buffered(src)?;
        if !copies && (!aligned || shared < len) {
            nonblocking::check()?;
        }
        if aligned && !copies {
            match self.clone_range(src, src_offset, shared, dst, dst_offset) {
                Ok(cloned) => done = cloned,
                // The files have changed since the checks: copy the bytes.
                Err(Error::CsumsDiffer | Error::Invalid(_) | Error::Unaligned) => {
                    nonblocking::check()?;
                }
                Err(error) => return Err(error),
            }
        }
        let mut buf = vec![0; COPY_BYTES.min((len - done) as usize)];
        while done < len {
            let part = buf.len().min((len - done) as usize);
            let read = self.read(src, src_offset + done, &mut buf[..part]);
            let copied = read.and_then(|read| {
                self.write(dst, dst_offset + done, &buf[..read])?;
                Ok(read as u64)
            });
            match copied {
                Ok(0) => break,
                Ok(more) => done += more,
                // With an error, the caller would assume that nothing was copied.
                Err(error) if done > 0 => {
                    tracing::debug!(?dst, done, %error, "a part is copied");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn is_buffered(&self, id: FileId) -> Result<bool> {
        let inode = self.inodes.get(id)?;
        Ok(lock::read(&inode.lock)?.buffer.is_dirty())
    }

    /// Reserves the needs of a step, including data space if data must be written. Then locks both files with
    /// nothing buffered. Also returns the most extents that a step may change.
    fn begin_share<'a>(
        &self,
        src: &'a Arc<Inode>,
        dst: &'a Arc<Inode>,
        share: Share,
    ) -> Result<(DelallocReservation, usize, Pair<'a>)> {
        let extents = self.extents_to_share(src, dst, share)?;
        let mut writes = self.writes_data(src, dst, share)?;
        loop {
            let (delalloc, step) = self.reserve_for_clone(dst.id.root, writes, extents)?;
            let mut pair = Pair::lock(src, dst)?;
            pair.write_back(self)?;
            if writes || !self.writes_data(src, dst, share)? {
                return Ok((delalloc, step, pair));
            }
            // The files changed before the lock was taken: reserve again, now with data space.
            writes = true;
        }
    }

    /// Returns whether sharing writes any data: a copy of inline data, or the last sector of a file that
    /// grows first. As in the kernel, other clones need no data space.
    fn writes_data(&self, src: &Inode, dst: &Inode, share: Share) -> Result<bool> {
        let sectorsize = self.roots.sectorsize();
        let (src_size, dst_size) = (facts(src)?.1, facts(dst)?.1);
        if share.to > dst_size {
            return Ok(true);
        }
        if share.from >= sectorsize {
            return Ok(false);
        }
        let state = lock::read(&src.lock)?;
        let first = 0..sectorsize;
        let extents = ExtentEdit::load(src, sectorsize, first.clone())?;
        let is_inline = matches!(first_of(&extents, &first), Some((_, Extent::Inline(_))));
        Ok(is_inline || src_size <= sectorsize && state.buffer.is_dirty())
    }

    /// Returns the larger number of extents in the two ranges as they are now, up to the limit of a step.
    fn extents_to_share(&self, src: &Inode, dst: &Inode, share: Share) -> Result<usize> {
        let within = |start: u64| {
            let end = start.saturating_add(share.len);
            start..if share.len == 0 { u64::MAX } else { end }
        };
        let from = self.extents_in(src, within(share.from), STEP)?;
        Ok(from.max(self.extents_in(dst, within(share.to), STEP)?))
    }

    /// Reserves the worst case of a step with that many `extents`, or of a small step if there is no room for that.
    /// With `writes_data` it also reserves data space. Also returns the most extents that a step may change.
    fn reserve_for_clone(
        &self,
        subvolume: RootId,
        writes_data: bool,
        extents: usize,
    ) -> Result<(DelallocReservation, usize)> {
        let sectorsize = self.roots.sectorsize();
        let inline_bytes = WriteBuffer::need_bytes(0, sectorsize, sectorsize);
        let data_bytes = if writes_data {
            inline_bytes + GROW_SECTORS * sectorsize
        } else {
            0
        };
        let step = extents.clamp(LEAST_STEP, STEP);
        match self
            .inodes
            .reserve_delalloc(subvolume, data_bytes, cost_of(step))
        {
            Err(error) if error.is_no_space() && step > LEAST_STEP => {}
            delalloc => return Ok((delalloc?, step)),
        }
        let delalloc = self
            .inodes
            .reserve_delalloc(subvolume, data_bytes, cost_of(LEAST_STEP))?;
        Ok((delalloc, LEAST_STEP))
    }

    /// Checks a clone by the kernel's rules. Returns the share, with a length of 0 replaced by the length up
    /// to the source's end.
    fn check_clone(&self, pair: &Pair<'_>, share: Share) -> Result<Share> {
        let sectorsize = self.roots.sectorsize();
        let (src_size, dst_size) = (facts(pair.src)?.1, facts(pair.dst)?.1);
        let Share { from, to, len } = share;
        let rest = src_size.checked_sub(from);
        let rest = rest.ok_or(Error::Invalid("range behind the end of the file"))?;
        let len = if len == 0 { rest } else { len };
        if len > rest {
            return Err(Error::Invalid("range behind the end of the file"));
        }
        let end = end_of(to, len)?;
        if !len.is_multiple_of(sectorsize) && (len != rest || end < dst_size) {
            return Err(Error::Unaligned);
        }
        self.check_places(pair, Share { from, to, len })
    }

    /// Checks a deduplication by the kernel's rules. Returns the share without the incomplete last sector
    /// that cannot be shared.
    fn check_dedupe(&self, pair: &Pair<'_>, share: Share) -> Result<Share> {
        let (src_size, dst_size) = (facts(pair.src)?.1, facts(pair.dst)?.1);
        let Share { from, to, len } = share;
        let (src_end, dst_end) = (end_of(from, len)?, end_of(to, len)?);
        if src_end > src_size || dst_end > dst_size {
            return Err(Error::Invalid("range behind the end of the file"));
        }
        let len = if src_end == src_size && dst_end == dst_size {
            len
        } else {
            len - len % self.roots.sectorsize()
        };
        self.check_places(pair, Share { from, to, len })
    }

    /// Checks that the two files can share extents at these offsets.
    fn check_places(&self, pair: &Pair<'_>, share: Share) -> Result<Share> {
        let sectorsize = self.roots.sectorsize();
        let Share { from, to, len } = share;
        if !from.is_multiple_of(sectorsize) || !to.is_multiple_of(sectorsize) {
            return Err(Error::Unaligned);
        }
        if pair.src.id == pair.dst.id && overlap(from, to, len.next_multiple_of(sectorsize)) {
            return Err(Error::Invalid("ranges overlap"));
        }
        let (src_flags, dst_flags) = (facts(pair.src)?.0, facts(pair.dst)?.0);
        if (src_flags ^ dst_flags).contains(InodeFlags::NODATASUM) {
            return Err(Error::CsumsDiffer);
        }
        Ok(share)
    }

    fn holds_same(&self, pair: &Pair<'_>, share: Share) -> Result<bool> {
        let mut bufs = [vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]];
        let mut done = 0;
        while done < share.len {
            let len = COMPARE_BYTES.min((share.len - done) as usize);
            let sides = [(pair.src, share.from + done), (pair.dst, share.to + done)];
            for ((inode, offset), buf) in sides.into_iter().zip(&mut bufs) {
                let flags = facts(inode)?.0;
                let mut reader = Reader::new(self, &inode.tree, inode.id, flags);
                reader.plan(offset, 0..len, buf)?;
                reader.run(buf)?;
            }
            if bufs[0][..len] != bufs[1][..len] {
                return Ok(false);
            }
            done += len as u64;
        }
        Ok(true)
    }

    /// Shares the range in steps of at most `most` extents. Each step calls `note` on the destination's inode
    /// item.
    ///
    /// Errors: the thread must not wait, and more than one step is needed.
    fn share(
        &self,
        pair: &mut Pair<'_>,
        share: Share,
        most: usize,
        mut delalloc: DelallocReservation,
        note: fn(&mut InodeItem),
    ) -> Result<()> {
        pair.forget();
        let sectorsize = self.roots.sectorsize();
        let whole = share.len.next_multiple_of(sectorsize);
        let mut done = 0;
        while done < whole {
            let from = share.from + done..share.from + whole;
            let to = share.to + done..share.to + whole;
            let (src, src_end) = ExtentEdit::load_head(pair.src, sectorsize, from.clone(), most)?;
            let (dst, dst_end) = ExtentEdit::load_head(pair.dst, sectorsize, to.clone(), most)?;
            // Inline data is written as data, and its length depends on the file's size at that time, so it
            // takes a step of its own.
            let is_inline = matches!(first_of(&src, &from), Some((_, Extent::Inline(_))));
            let longest = if is_inline { sectorsize } else { whole };
            let step = longest.min(src_end - from.start).min(dst_end - to.start);
            if done + step < whole {
                nonblocking::check()?;
            }
            let part = Share {
                from: from.start,
                to: to.start,
                len: step.min(share.len - done),
            };
            if is_inline {
                let delalloc = delalloc.split(delalloc.data_bytes());
                self.copy_inline(pair, &src, part, delalloc, note)?;
                if done + step < whole {
                    // WRITEBACK-2: the next step moves the size beyond this data.
                    self.write_back_locked(pair.dst, &mut pair.dst_extents)?;
                }
            } else {
                self.share_step(pair, &src, dst, part, note)?;
            }
            done += step;
            if !nonblocking::is_set() {
                self.commit_between_steps(cost_of(most))?;
            }
        }
        Ok(())
    }

    fn share_step(
        &self,
        pair: &Pair<'_>,
        src: &ExtentEdit,
        mut dst: ExtentEdit,
        part: Share,
        note: fn(&mut InodeItem),
    ) -> Result<()> {
        let sectorsize = self.roots.sectorsize();
        let whole = part.len.next_multiple_of(sectorsize);
        let from = part.from..part.from + whole;
        let _state = lock::write(&pair.dst.lock)?;
        let mut item = read_file(pair.dst)?;
        note(&mut item);
        let txn = self.join_to_change_file(pair.dst, Reservation::already_made())?;
        let generation = txn.transid().0;
        dst.clear(part.to..part.to + whole)?;
        for (place, extent) in src.overlapping(from.clone()) {
            let cut = place.start.max(from.start)..place.end.min(from.end);
            let within = cut.start - place.start..cut.end - place.start;
            let to = part.to + (cut.start - from.start);
            // NOCOW-2: announce the shared extent before its reference is in the extent tree.
            if let Some(Extent::Disk(shared)) = extent.slice(within) {
                self.inodes
                    .transactions()?
                    .shared_extents
                    .add(shared.disk.start, txn.transid());
                dst.put(
                    to,
                    Extent::Disk(DiskPart {
                        generation,
                        ..shared
                    }),
                );
            }
        }
        let end = part.to + part.len;
        let old_size = item.size.get();
        self.enter_size(&mut dst, &mut item, old_size..end.max(old_size), generation);
        if !self.roots.has_no_holes() {
            let size = item.size.get().next_multiple_of(sectorsize);
            dst.fill_holes(
                part.to..(part.to + whole).min(size).max(part.to),
                generation,
            );
        }
        enter_extent_edit(&txn, pair.dst, &dst, &mut item);
        Ok(())
    }

    /// Copies a sector of inline data into the destination's buffer, padded with zeros. Write-back then
    /// replaces the old extent by it (INLINE-COPY-1).
    fn copy_inline(
        &self,
        pair: &Pair<'_>,
        src: &ExtentEdit,
        part: Share,
        delalloc: DelallocReservation,
        note: fn(&mut InodeItem),
    ) -> Result<()> {
        let sectorsize = self.roots.sectorsize();
        let bytes = self.inline_bytes(pair.src, src, part.from..part.from + part.len)?;
        let mut state = lock::write(&pair.dst.lock)?;
        let mut item = read_file(pair.dst)?;
        note(&mut item);
        let files = &self.inodes.dirty;
        // DIRTY-1
        let is_listed = state.buffer.is_dirty();
        files.add(pair.dst);
        match self.join_to_change_file(pair.dst, Reservation::already_made()) {
            Ok(txn) => note_times(&txn, pair.dst, &mut item),
            Err(error) => {
                if !is_listed {
                    files.remove(pair.dst.id);
                }
                return Err(error);
            }
        }
        state
            .buffer
            .write(files.buffer_pool(), part.to, &bytes, sectorsize, delalloc);
        Ok(())
    }

    /// Returns the inline bytes of the source in `range`, padded with zeros.
    fn inline_bytes(
        &self,
        src: &Inode,
        extent_edit: &ExtentEdit,
        range: Range<u64>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let end = match first_of(extent_edit, &range) {
            Some((_, Extent::Inline(inline))) => inline.ram_bytes.clamp(range.start, range.end),
            _ => range.start,
        };
        let held = &mut bytes[..(end - range.start) as usize];
        let flags = facts(src)?.0;
        let mut reader = Reader::new(self, &src.tree, src.id, flags);
        reader.plan(range.start, 0..held.len(), held)?;
        reader.run(held)?;
        Ok(bytes)
    }
}

fn first_of<'a>(
    extent_edit: &'a ExtentEdit,
    range: &Range<u64>,
) -> Option<(Range<u64>, &'a Extent)> {
    extent_edit.overlapping(range.clone()).next()
}

fn overlap(a: u64, b: u64, len: u64) -> bool {
    a.abs_diff(b) < len
}

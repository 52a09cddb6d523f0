//! `fallocate`: preallocates space, punches holes, zeroes ranges.
//!
//! Preallocated space is an extent that reads as zeros until it is written. A change runs in steps of a
//! bounded number of extents, and the file is sound after every step. After an interruption a part of the
//! range is done.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_storage::{DiskExtent, EditEstimate, FREEING_ITEMS, FileId, Reservation};

use super::Files;
use super::change::{end_of, note_write, read_file, refuse_flags};
use super::extent::{DiskPart, Extent};
use super::extent_edit::ExtentEdit;
use super::extents::FileExtents;
use super::write::WriteTarget;
use super::write_back::{GROW_SECTORS, enter_extent_edit};
use crate::error::{Error, Result};
use crate::inode::{
    DelallocRequest, DelallocReservation, FileExtentsState, Inode, LockedExtents, MAX_EXTENT_BYTES,
    WriteBuffer, put_inode,
};

/// A mode of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Preallocates space for holes. Data stays.
    Reserve { keep_size: bool },
    /// Makes a hole. The size stays.
    PunchHole,
    /// Replaces the range by preallocated space.
    ZeroRange { keep_size: bool },
}

impl Fallocate {
    fn keeps_size(self) -> bool {
        match self {
            Fallocate::Reserve { keep_size } | Fallocate::ZeroRange { keep_size } => keep_size,
            Fallocate::PunchHole => true,
        }
    }

    /// Returns the inode flags that forbid this mode.
    fn guards(self) -> InodeFlags {
        match self {
            Fallocate::Reserve { .. } => InodeFlags::IMMUTABLE,
            Fallocate::PunchHole | Fallocate::ZeroRange { .. } => {
                InodeFlags::IMMUTABLE | InodeFlags::APPEND
            }
        }
    }
}

/// The most extents that one step changes or preallocates.
const STEP: usize = 512;
/// The smallest limit of a step: for ranges with fewer extents, or on a volume without room for more.
const STEP_WHEN_FULL: usize = 8;
/// The limit of a step that frees space on a full volume, where it may use the room kept for such operations.
const PUNCH_WHEN_FULL: usize = (FREEING_ITEMS / EXTENT_ITEMS) as usize;
/// Items per extent, including its remainders or the hole item in its place.
const EXTENT_ITEMS: u64 = 4;

/// How often the required space is counted again because other threads changed the file.
const BEGIN_TRIES: usize = 8;

/// The reservations of one call.
#[derive(Debug)]
struct Means {
    /// For the cut sectors at the edges, and the items of one step.
    edges: DelallocReservation,
    /// For the sectors to preallocate.
    space: DelallocReservation,
    steps: Steps,
}

/// Selects parts of a range by their extents.
type PartsOf = fn(&ExtentEdit, Range<u64>) -> Vec<Range<u64>>;

/// The limits of one step.
#[derive(Clone, Copy, Debug)]
struct Steps {
    extents: usize,
    frees_space: bool,
}

impl Steps {
    /// Returns the limits of a step for a range with at most `most_extents`.
    fn of(mode: Fallocate, is_full: bool, most_extents: usize) -> Steps {
        let frees_space = mode == Fallocate::PunchHole;
        let extents = match (is_full, frees_space) {
            (false, _) => most_extents.clamp(STEP_WHEN_FULL, STEP),
            (true, false) => STEP_WHEN_FULL,
            (true, true) => PUNCH_WHEN_FULL,
        };
        Steps {
            extents,
            frees_space,
        }
    }

    fn cost(self) -> EditEstimate {
        let cost = EditEstimate::neighbours(EXTENT_ITEMS * self.extents as u64);
        if self.frees_space {
            cost.with_global_reserve()
        } else {
            cost
        }
    }
}

impl Files {
    /// Preallocates, punches or zeroes `len` bytes from `offset` on. `len` is not 0.
    pub(crate) fn fallocate(
        &self,
        id: FileId,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if len == 0 {
            return Err(Error::Invalid("length of 0"));
        }
        let end = end_of(offset, len)?;
        nonblocking::check()?;
        let range = offset..end;
        let inode = self.inodes.inode_to_change(id)?;
        refuse_flags(&inode, mode.guards())?;
        let touched = touched_sectors(&range, self.roots.sectorsize());
        let (mut means, mut extents) = match self.begin_fallocate(&inode, mode, &range) {
            Err(error)
                if error.is_no_space()
                    && mode == Fallocate::PunchHole
                    // A full volume has no space to copy the cut sectors, but a nocow file needs none.
                    && self.may_overwrite(&inode)? =>
            {
                return self.punch_in_place(&inode, range);
            }
            begun => begun?,
        };
        let steps = means.steps;
        let size = {
            let state = inode.lock.read();
            state.buffer.size_over(read_file(&inode)?.size.get())
        };
        let changes = match mode {
            Fallocate::PunchHole => self.has_any_data(&inode, &touched)?,
            _ => true,
        };
        match mode {
            Fallocate::Reserve { .. } => {
                self.reserve(&inode, touched.clone(), &mut means.space, steps)?;
            }
            Fallocate::PunchHole => {
                // A hole to the end of the file or beyond drops the last sector instead of zeroing a part of
                // it.
                let end = if end >= size {
                    end.next_multiple_of(self.roots.sectorsize())
                } else {
                    end
                };
                let range = offset..end;
                let edges = &mut means.edges;
                self.zero(&inode, &mut extents, range, edges, None, steps)?;
            }
            Fallocate::ZeroRange { .. } => {
                let (edges, space) = (&mut means.edges, Some(&mut means.space));
                self.zero(&inode, &mut extents, range, edges, space, steps)?;
            }
        }
        if !mode.keeps_size() && end > size {
            self.grow_locked(&inode, &mut extents, end, means.edges)?;
        }
        if changes {
            self.note_fallocate(&inode, mode)
        } else {
            // As in the kernel, punching a hole where there is one does not change the times.
            Ok(())
        }
    }

    /// Punches a hole on a full volume: the sectors that the range cuts are overwritten in place (nocow).
    ///
    /// Errors: no space if a cut sector cannot be overwritten, for example because a snapshot shares it. A
    /// part of the range may have become a hole by then.
    fn punch_in_place(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let sectorsize = self.roots.sectorsize();
        let size = {
            let state = inode.lock.read();
            state.buffer.size_over(read_file(inode)?.size.get())
        };
        let whole = whole_sectors(&range, sectorsize);
        let end = range.end.min(size);
        let edges = if whole.is_empty() {
            [range.start..end, 0..0]
        } else {
            // Nothing beyond the end of the file needs zeros.
            let tail = whole.end..end;
            [range.start..whole.start.min(end), tail]
        };
        for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
            if !self.has_any_data(inode, &touched_sectors(&edge, sectorsize))? {
                continue;
            }
            let zeros = vec![0; (edge.end - edge.start) as usize];
            let cost = self.inodes.cost_of_times();
            let need =
                DelallocReservation::nocow(&self.inodes, inode.id.root, 2 * sectorsize, cost)?;
            self.write_nocow_only(inode, WriteTarget::At(edge.start), &zeros, need)?;
        }
        if whole.is_empty() {
            Ok(())
        } else {
            let len = whole.end - whole.start;
            self.fallocate(inode.id, Fallocate::PunchHole, whole.start, len)
        }
    }

    /// Reserves all space of the change, then locks the file's extents. Repeats if the file changed in
    /// between.
    fn begin_fallocate<'a>(
        &self,
        inode: &'a Arc<Inode>,
        mode: Fallocate,
        range: &Range<u64>,
    ) -> Result<(Means, LockedExtents<'a>)> {
        let sectorsize = self.roots.sectorsize();
        let touched = touched_sectors(range, sectorsize);
        // As in the kernel, a hole of whole sectors writes no data.
        let is_whole_hole =
            mode == Fallocate::PunchHole && whole_sectors(range, sectorsize) == touched;
        for _ in 0..BEGIN_TRIES {
            let data_bytes = self.bytes_to_reserve(inode, mode, range)?;
            let small_bytes = self.small_bytes(inode, mode, range, is_whole_hole)?;
            let piece_bytes = self.inodes.transactions()?.space.average_free_run_bytes();
            let extra_extents = piece_bytes.map_or(0, |piece| data_bytes / piece.max(sectorsize));
            let old_extents = self.extents_in(inode, touched.clone(), STEP)?;
            // New extents may appear before, behind and between the existing ones.
            let most_extents = (2 * old_extents + 1).saturating_add(extra_extents as usize);
            let (edges, steps) =
                self.reserve_steps(inode.id.root, mode, small_bytes, most_extents)?;
            let space = match self.inodes.reserve_delalloc(
                inode.id.root,
                data_bytes,
                EditEstimate::default(),
            ) {
                // Write-back during the reservation gave buffered data its extents, so the range needs less
                // now. Count again.
                Err(error)
                    if error.is_no_space()
                        && self.bytes_to_reserve(inode, mode, range)? < data_bytes =>
                {
                    continue;
                }
                space => space?,
            };
            let mut extents = inode.extents.lock()?;
            let is_longer = {
                let state = inode.lock.read();
                let size = read_file(inode)?.size.get();
                state.buffer.size_over(size) > size
            };
            // The size may follow from buffered data that the hole would drop: give that data extents first.
            if matches!(mode, Fallocate::Reserve { .. }) || is_whole_hole && is_longer {
                self.write_back_locked(inode, &mut extents)?;
            }
            // Other threads may have punched holes before the lock was taken, which then need space too.
            if self.bytes_to_reserve(inode, mode, range)? <= space.data_bytes() {
                let means = Means {
                    edges,
                    space,
                    steps,
                };
                return Ok((means, extents));
            }
        }
        Err(Error::NoSpace)
    }

    /// Returns the bytes to reserve for the sectors that the range cuts. A file that grows also needs the
    /// bytes of its last sector.
    fn small_bytes(
        &self,
        inode: &Inode,
        mode: Fallocate,
        range: &Range<u64>,
        is_whole_hole: bool,
    ) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let edge_bytes = 2 * WriteBuffer::need_bytes(0, 1, sectorsize);
        let grow_bytes = 2 * GROW_SECTORS * sectorsize;
        if let Fallocate::Reserve { keep_size } = mode {
            let state = inode.lock.read();
            let size = state.buffer.size_over(read_file(inode)?.size.get());
            let grows = !keep_size && range.end > size;
            return Ok(if grows { grow_bytes } else { 0 });
        }
        Ok(if is_whole_hole {
            0
        } else {
            edge_bytes + grow_bytes
        })
    }

    /// Reserves `data_bytes` and the items of one step of at most `most_extents`. Falls back to a small step
    /// if there is no room for more.
    fn reserve_steps(
        &self,
        subvolume: RootId,
        mode: Fallocate,
        data_bytes: u64,
        most_extents: usize,
    ) -> Result<(DelallocReservation, Steps)> {
        let steps = Steps::of(mode, false, most_extents);
        match self
            .inodes
            .reserve_delalloc(subvolume, data_bytes, steps.cost())
        {
            Err(error) if error.is_no_space() => {}
            delalloc => return Ok((delalloc?, steps)),
        }
        let steps = Steps::of(mode, true, most_extents);
        Ok((
            self.inodes
                .reserve_delalloc(subvolume, data_bytes, steps.cost())?,
            steps,
        ))
    }

    /// Returns the bytes to preallocate for the change, as the file is now.
    fn bytes_to_reserve(&self, inode: &Inode, mode: Fallocate, range: &Range<u64>) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let (range, parts): (_, PartsOf) = match mode {
            Fallocate::PunchHole => return Ok(0),
            Fallocate::Reserve { .. } => {
                (touched_sectors(range, sectorsize), |extent_edit, part| {
                    holes(extent_edit, part).collect()
                })
            }
            Fallocate::ZeroRange { .. } => {
                (whole_sectors(range, sectorsize), |extent_edit, part| {
                    unless_reserved(extent_edit, part)
                })
            }
        };
        let _state = inode.lock.read();
        read_file(inode)?;
        let mut bytes = 0;
        let mut at = range.start;
        while at < range.end {
            let next = self
                .next_extent(inode, at)?
                .map_or(range.end, |next| next.min(range.end));
            if next > at {
                bytes += next - at;
                at = next;
                continue;
            }
            // By steps of extents: an explicit hole may be as long as the largest file.
            let rest = at..range.end;
            let (extent_edit, end) = ExtentEdit::load_head(inode, sectorsize, rest, STEP)?;
            let of_part = parts(&extent_edit, at..end);
            bytes += of_part
                .iter()
                .map(|part| part.end - part.start)
                .sum::<u64>();
            at = end;
        }
        Ok(bytes)
    }

    /// Preallocates the holes in `range`, which is whole sectors.
    fn reserve(
        &self,
        inode: &Inode,
        range: Range<u64>,
        space: &mut DelallocReservation,
        steps: Steps,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min(at + MAX_EXTENT_BYTES);
            let (extent_edit, end) =
                ExtentEdit::load_head(inode, self.roots.sectorsize(), part, steps.extents)?;
            let holes: Vec<Range<u64>> = holes(&extent_edit, at..end).collect();
            let stopped = self.put_reserved(inode, extent_edit, holes, space, steps)?;
            at = stopped.unwrap_or(end);
            if at < range.end {
                self.commit_between_steps(steps.cost())?;
            }
        }
        Ok(())
    }

    /// Replaces `places` by preallocated extents, in one transaction. Returns the offset where it stopped, if
    /// free space is so fragmented that the step's limit was reached.
    fn put_reserved(
        &self,
        inode: &Inode,
        mut extent_edit: ExtentEdit,
        places: Vec<Range<u64>>,
        space: &mut DelallocReservation,
        steps: Steps,
    ) -> Result<Option<u64>> {
        if places.is_empty() {
            return Ok(None);
        }
        let manager = self.inodes.transactions()?;
        let mut wanted = DelallocRequest {
            bytes: 0,
            min_bytes: self.roots.sectorsize(),
            hint: None,
        };
        let mut parts = Vec::new();
        let mut allocate = || -> Result<Option<u64>> {
            for place in &places {
                let mut at = place.start;
                if let Some(Extent::Disk(before)) = extent_edit.before(at) {
                    wanted.hint = Some(before.end());
                }
                while at < place.end {
                    if parts.len() >= steps.extents {
                        return Ok(Some(at));
                    }
                    wanted.bytes = (place.end - at).min(MAX_EXTENT_BYTES);
                    let (start, len) = space.allocate(&self.inodes, &wanted)?;
                    let part = DiskPart {
                        generation: 0,
                        ram_bytes: len,
                        compression: Compression::None,
                        prealloc: true,
                        disk: DiskExtent { start, len },
                        offset: 0,
                        len,
                    };
                    wanted.hint = Some(part.end());
                    parts.push((at, part));
                    at += len;
                }
            }
            Ok(None)
        };
        let entered = allocate().and_then(|stopped| {
            let _state = inode.lock.write();
            let mut item = read_file(inode)?;
            let txn = self.join_to_change_file(inode, Reservation::already_made())?;
            let generation = txn.transid().0;
            for (start, part) in &parts {
                let part = part.clone();
                extent_edit.replace(*start, Extent::Disk(DiskPart { generation, ..part }))?;
            }
            for (_, part) in &parts {
                txn.new_data_extent(part.disk);
            }
            item.flags = (item.flags() | InodeFlags::PREALLOC).bits().into();
            enter_extent_edit(&txn, inode, &extent_edit, &mut item);
            Ok(stopped)
        });
        if entered.is_err() {
            for (_, part) in &parts {
                manager.space.release(part.disk.start, part.disk.len);
            }
        }
        entered
    }

    /// Makes `range` read as zeros. Whole sectors become holes, or preallocated extents if `space` is given.
    /// Cut sectors at the edges get zeros written.
    fn zero(
        &self,
        inode: &Arc<Inode>,
        extents: &mut FileExtentsState,
        range: Range<u64>,
        edges: &mut DelallocReservation,
        mut space: Option<&mut DelallocReservation>,
        steps: Steps,
    ) -> Result<()> {
        let sectorsize = self.roots.sectorsize();
        let whole = whole_sectors(&range, sectorsize);
        // The size may follow from the buffered data that was just dropped: write the rest back and keep the
        // size.
        let size = self.zero_edges(inode, &range, &whole, edges)?;
        self.grow_locked(inode, extents, size, edges.split(GROW_SECTORS * sectorsize))?;
        let mut at = whole.start;
        while at < whole.end {
            // Skip existing holes without loading them.
            if space.is_none() {
                match self.next_extent(inode, at)? {
                    Some(next) if next < whole.end => at = next,
                    _ => break,
                }
            }
            let most = match space {
                Some(_) => whole.end.min(at + MAX_EXTENT_BYTES),
                None => whole.end,
            };
            let (extent_edit, end) =
                ExtentEdit::load_head(inode, sectorsize, at..most, steps.extents)?;
            let stopped = match &mut space {
                Some(space) => {
                    let places = unless_reserved(&extent_edit, at..end);
                    self.put_reserved(inode, extent_edit, places, space, steps)?
                }
                None => {
                    self.punch(inode, extent_edit, at..end)?;
                    None
                }
            };
            at = stopped.unwrap_or(end);
            if at < whole.end {
                self.commit_between_steps(steps.cost())?;
            }
        }
        Ok(())
    }

    /// Drops the buffered data of whole sectors. Writes zeros into the sectors that the range cuts, if they
    /// hold data. Returns the size that the file had.
    fn zero_edges(
        &self,
        inode: &Arc<Inode>,
        range: &Range<u64>,
        whole: &Range<u64>,
        edges: &mut DelallocReservation,
    ) -> Result<u64> {
        let sectorsize = self.roots.sectorsize();
        let touched = touched_sectors(range, sectorsize);
        let first = touched.start..touched.start + sectorsize;
        let last = touched.end - sectorsize..touched.end;
        let extent_edit = ExtentEdit::load_all(inode, sectorsize, [first.clone(), last.clone()])?;
        let mut state = inode.lock.write();
        let item = read_file(inode)?;
        let size = state.buffer.size_over(item.size.get());
        edges.join(state.buffer.forget(whole.clone(), sectorsize));
        let cut = if first == last {
            vec![first]
        } else {
            vec![first, last]
        };
        for sector in cut {
            let from = sector.start.max(range.start);
            let to = sector.end.min(range.end).min(size);
            let stored = extent_edit
                .overlapping(sector.clone())
                .any(|(_, extent)| extent.has_data());
            // Zeros are needed only in a sector that keeps some of its bytes and holds any data at all.
            let is_cut = from > sector.start || to < sector.end;
            if !is_cut || from >= to || !(stored || state.buffer.touches(sector.clone())) {
                continue;
            }
            if whole.start <= sector.start && sector.end <= whole.end {
                continue;
            }
            let zeros = vec![0; (to - from) as usize];
            let files = &self.inodes.dirty;
            let delalloc = edges.split(WriteBuffer::need_bytes(from, to - from, sectorsize));
            state
                .buffer
                .write(files.buffer_pool(), from, &zeros, sectorsize, delalloc);
            files.add(inode);
        }
        Ok(size)
    }

    /// Returns whether any of `range` holds data, buffered or on disk, or preallocated space.
    fn has_any_data(&self, inode: &Inode, range: &Range<u64>) -> Result<bool> {
        let is_buffered = inode.lock.read().buffer.touches(range.clone());
        let next = self.next_extent(inode, range.start)?;
        Ok(is_buffered || next.is_some_and(|next| next < range.end))
    }

    /// Returns the start of the first sector at or above `at` that has an extent. A range may be as long as
    /// the largest file, so holes are skipped and not walked in steps.
    fn next_extent(&self, inode: &Inode, at: u64) -> Result<Option<u64>> {
        let sectorsize = self.roots.sectorsize();
        let mut extents = FileExtents::from(self, &inode.tree, inode.id, at)?;
        let mut found = None;
        while found.is_none() {
            let more = extents.next(&mut |range| {
                if range.end_aligned(sectorsize) > at {
                    found = Some((range.start - range.start % sectorsize).max(at));
                }
                Ok(())
            })?;
            if !more {
                break;
            }
        }
        Ok(found)
    }

    /// Makes `range`, which is whole sectors, a hole.
    fn punch(&self, inode: &Inode, mut extent_edit: ExtentEdit, range: Range<u64>) -> Result<()> {
        let _state = inode.lock.write();
        let mut item = read_file(inode)?;
        let size = item.size.get().next_multiple_of(self.roots.sectorsize());
        let txn = self.join_to_change_file(inode, Reservation::already_made())?;
        extent_edit.clear(range.clone())?;
        if !self.roots.has_no_holes() && range.start < size {
            extent_edit.fill_holes(range.start..range.end.min(size), txn.transid().0);
        }
        if !extent_edit.is_idle() {
            enter_extent_edit(&txn, inode, &extent_edit, &mut item);
        }
        Ok(())
    }

    fn note_fallocate(&self, inode: &Inode, mode: Fallocate) -> Result<()> {
        let _state = inode.lock.write();
        let mut item = read_file(inode)?;
        let txn = self.join_to_change_file(inode, Reservation::already_made())?;
        note_write(&mut item);
        if let Fallocate::Reserve { .. } = mode {
            item.flags = (item.flags() | InodeFlags::PREALLOC).bits().into();
        }
        put_inode(&txn, inode, &mut item);
        Ok(())
    }
}

/// Returns the whole sectors within a range. May be empty.
fn whole_sectors(range: &Range<u64>, sectorsize: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(sectorsize);
    let end = range.end - range.end % sectorsize;
    start..end.max(start)
}

/// Returns the range, extended to whole sectors.
fn touched_sectors(range: &Range<u64>, sectorsize: u64) -> Range<u64> {
    range.start - range.start % sectorsize..range.end.next_multiple_of(sectorsize)
}

/// Returns the parts of `range` that have neither data nor preallocated space.
fn holes(extent_edit: &ExtentEdit, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let explicit = extent_edit
        .overlapping(range.clone())
        .filter(|(_, extent)| matches!(extent, Extent::Hole { .. }))
        .map(|(place, _)| place);
    let mut holes: Vec<Range<u64>> = extent_edit
        .gaps(range.clone())
        .into_iter()
        .chain(explicit)
        .collect();
    holes.sort_unstable_by_key(|hole| hole.start);
    holes
        .into_iter()
        .map(move |hole| hole.start.max(range.start)..hole.end.min(range.end))
}

/// Returns the parts of `range` that are not preallocated space already.
fn unless_reserved(extent_edit: &ExtentEdit, range: Range<u64>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = range.start;
    for (place, extent) in extent_edit.overlapping(range.clone()) {
        if matches!(extent, Extent::Disk(part) if part.prealloc) {
            if at < place.start {
                parts.push(at..place.start);
            }
            at = at.max(place.end);
        }
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

//! Verified reads, which fall back to other mirrors.
//!
//! The first pass reads everything at once, in one batch for each device. It uses the first mirror whose device is
//! present and missed no writes. A block that fails verification is then read separately from each mirror in turn.
//!
//! Invariants
//! - CHECKED-1: a block reported as read was accepted by `good` after its last change.
//! - CHECKED-2: every failed attempt, except on a missing device, is recorded as a read error.
//! - CHECKED-3: a thread that must not block neither tries other mirrors nor records errors.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use ubtrfs_format::ids::{DevId, Logical, Physical};

use super::{Pool, PoolDevice};
use crate::block_device::DeviceRead;
use crate::chunk_map::MappedChunk;
use crate::error::{Attempt, AttemptProblem, DeviceError, ReadFailure};
use crate::file::queue_reads;
use crate::nonblocking;
use crate::read_errors::{ReadErrorKind, ReadErrorRecord};

/// One read of a batch.
pub struct CheckedRead<'a> {
    pub logical: Logical,
    pub buf: &'a mut [u8],
    /// Number of bytes that are verified together; the last block may be shorter.
    pub block_bytes: usize,
    /// Verifies block `index` of the read.
    pub good: &'a mut dyn FnMut(usize, &[u8]) -> bool,
    /// Whether to repair damaged mirrors, see [`Pool::read_repairing`].
    pub repairs: bool,
    pub result: Result<(), ReadFailure>,
}

impl std::fmt::Debug for CheckedRead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedRead")
            .field("logical", &self.logical)
            .field("len", &self.buf.len())
            .field("block_bytes", &self.block_bytes)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

/// A part of a read in the first pass.
struct Planned {
    range: Range<usize>,
    mirror: usize,
    physical: Physical,
    device: Arc<PoolDevice>,
    outcome: io::Result<()>,
}

/// The first pass of one read: the planned device reads, and the ranges without a present device.
#[derive(Default)]
struct FirstPass {
    planned: Vec<Planned>,
    unplanned: Vec<Range<usize>>,
}

impl Pool {
    /// Reads `buf` and verifies every `block_bytes` bytes with `good(index, bytes)`. If a block cannot be read or fails
    /// verification, it is read from the next mirror or reconstructed; failed attempts are recorded. The error is
    /// about the first block without a good mirror; the others are still read. `good` may be called more than once
    /// for a block.
    ///
    /// # Panics
    /// If `block_bytes` is 0.
    pub fn read_checked(
        &self,
        logical: Logical,
        buf: &mut [u8],
        block_bytes: usize,
        good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), ReadFailure> {
        self.read_one(logical, buf, block_bytes, good, false)
    }

    /// Reads like [`Pool::read_checked`], and writes the good bytes of a block to its damaged mirrors if repairs are
    /// allowed.
    ///
    /// The caller guarantees that nothing else writes the range before the read returns (MIRROR-REPAIR-3). `good`
    /// accepts only bytes that match a checksum.
    pub fn read_repairing(
        &self,
        logical: Logical,
        buf: &mut [u8],
        block_bytes: usize,
        good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), ReadFailure> {
        self.read_one(logical, buf, block_bytes, good, true)
    }

    fn read_one(
        &self,
        logical: Logical,
        buf: &mut [u8],
        block_bytes: usize,
        good: &mut dyn FnMut(usize, &[u8]) -> bool,
        repairs: bool,
    ) -> Result<(), ReadFailure> {
        assert!(block_bytes > 0, "a read is checked in blocks");
        let _reading = self.reads.begin();
        if nonblocking::is_set() {
            return self.read_at_once(logical, buf, block_bytes, good);
        }
        if self.read_one_piece(logical, buf, block_bytes, good) {
            return Ok(());
        }
        let mut reads = [CheckedRead {
            logical,
            buf,
            block_bytes,
            good,
            repairs,
            result: Ok(()),
        }];
        self.read_checked_batch(&mut reads);
        let [read] = reads;
        read.result
    }

    /// Reads in the usual case: the whole read is on one stripe, and its device is present and missed no writes.
    /// Returns false otherwise, or if the read fails; nothing is recorded then.
    fn read_one_piece(
        &self,
        logical: Logical,
        buf: &mut [u8],
        block_bytes: usize,
        good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> bool {
        let Some(chunk) = self.chunk_map.find(logical) else {
            return false;
        };
        let len = buf.len() as u64;
        let piece = chunk.piece(logical.0 - chunk.logical().0, len, 1);
        if piece.len != len {
            return false;
        }
        let device = self.present(&chunk.stripes()[piece.stripe]);
        // MISSED-1
        let device = device
            .as_ref()
            .filter(|device| chunk.mirrors() == 1 || !device.errors.missed_writes());
        let Some(block) = device.and_then(|device| device.block()) else {
            return false;
        };
        block.read_at(buf, piece.physical.0).is_ok()
            && (0..)
                .zip(buf.chunks(block_bytes))
                .all(|(index, bytes)| good(index, bytes))
    }

    /// Reads from the first mirrors on a thread that must not block. Fails unless all data is available at once and
    /// valid. Blocking threads then find the cause and try other mirrors (CHECKED-3).
    fn read_at_once(
        &self,
        logical: Logical,
        buf: &mut [u8],
        block_bytes: usize,
        good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), ReadFailure> {
        let pass = self.plan(logical, buf.len());
        let is_read = pass.unplanned.is_empty()
            && pass.planned.iter().all(|piece| {
                let part = &mut buf[piece.range.clone()];
                let block = piece.device.block();
                block.is_some_and(|block| block.read_at(part, piece.physical.0).is_ok())
            })
            && (0..)
                .zip(buf.chunks(block_bytes))
                .all(|(index, bytes)| good(index, bytes));
        if is_read {
            Ok(())
        } else {
            Err(ReadFailure::would_block(logical, buf.len() as u64))
        }
    }

    /// Executes many reads like [`Pool::read_checked`], at queue depth.
    pub fn read_checked_batch(&self, reads: &mut [CheckedRead<'_>]) {
        let _reading = self.reads.begin();
        if nonblocking::is_set() {
            for read in reads {
                assert!(read.block_bytes > 0, "a read is checked in blocks");
                read.result =
                    self.read_at_once(read.logical, read.buf, read.block_bytes, read.good);
            }
            return;
        }
        let mut passes: Vec<FirstPass> = Vec::with_capacity(reads.len());
        for read in reads.iter() {
            assert!(read.block_bytes > 0, "a read is checked in blocks");
            passes.push(self.plan(read.logical, read.buf.len()));
        }
        run_first_pass(reads, &mut passes);
        for (read, pass) in reads.iter_mut().zip(passes) {
            read.result = self.finish(read, pass);
        }
    }

    /// Splits a read into pieces, each on the first mirror whose device is present, preferably one that missed no
    /// writes.
    fn plan(&self, logical: Logical, len: usize) -> FirstPass {
        let mut pass = FirstPass::default();
        let mut done = 0;
        while done < len {
            let found = logical
                .checked_add(done as u64)
                .and_then(|at| Some((at, self.chunk_map.find(at)?)));
            let Some((at, chunk)) = found else {
                pass.unplanned.push(done..len);
                break;
            };
            let offset = at.0 - chunk.logical().0;
            for direct in chunk.pieces(offset, (len - done) as u64, 1) {
                let range = done..done + direct.len as usize;
                let at = direct.logical.0 - chunk.logical().0;
                match self.first_present(&chunk, at, direct.len) {
                    Some((mirror, physical, device)) => pass.planned.push(Planned {
                        range: range.clone(),
                        mirror,
                        physical,
                        device,
                        outcome: Ok(()),
                    }),
                    None => pass.unplanned.push(range.clone()),
                }
                done = range.end;
            }
        }
        pass
    }

    fn first_present(
        &self,
        chunk: &MappedChunk,
        offset: u64,
        len: u64,
    ) -> Option<(usize, Physical, Arc<PoolDevice>)> {
        let direct = if chunk.has_parity() {
            1
        } else {
            chunk.mirrors()
        };
        let mut present = (1..=direct).filter_map(|mirror| {
            let piece = chunk.piece(offset, len, mirror);
            let device = self.present(&chunk.stripes()[piece.stripe])?;
            Some((mirror, piece.physical, device))
        });
        let first = present.next()?;
        // MISSED-1
        if !first.2.errors.missed_writes() {
            return Some(first);
        }
        let sound = present.find(|(.., device)| !device.errors.missed_writes());
        Some(sound.unwrap_or(first))
    }

    /// Returns the mirrors of a range. Those on devices that missed writes are last (MISSED-1).
    pub(super) fn mirrors_in_order(
        &self,
        chunk: &MappedChunk,
        offset: u64,
        len: u64,
    ) -> Vec<usize> {
        let mut mirrors: Vec<usize> = (1..=chunk.mirrors()).collect();
        if !chunk.has_parity() {
            mirrors.sort_by_key(|&mirror| {
                let piece = chunk.piece(offset, len, mirror);
                let device = self.present(&chunk.stripes()[piece.stripe]);
                device.is_some_and(|device| device.errors.missed_writes())
            });
        }
        mirrors
    }

    /// Verifies the blocks of the first pass, and reads the failed ones from other mirrors.
    fn finish(&self, read: &mut CheckedRead<'_>, pass: FirstPass) -> Result<(), ReadFailure> {
        let mut failure = None;
        let mut repeat = pass.unplanned;
        for planned in &pass.planned {
            if let Err(error) = &planned.outcome {
                // CHECKED-2
                self.add_read_error(ReadErrorRecord {
                    logical: Logical(read.logical.0 + planned.range.start as u64),
                    len: planned.range.len() as u64,
                    mirror: planned.mirror,
                    devid: planned.device.devid,
                    physical: planned.physical,
                    kind: ReadErrorKind::Io(error.to_string()),
                });
                repeat.push(planned.range.clone());
            }
        }
        // Pieces are in buffer order, so that one pass over them covers all blocks.
        let mut next = 0;
        for index in 0..read.buf.len().div_ceil(read.block_bytes) {
            let start = index * read.block_bytes;
            let end = (start + read.block_bytes).min(read.buf.len());
            while pass.planned.get(next).is_some_and(|p| p.range.end <= start) {
                next += 1;
            }
            let mut tried = None;
            // A block with an unread part need not be verified.
            let unread = repeat.iter().any(|r| r.start < end && start < r.end);
            if !unread {
                // CHECKED-1
                if (read.good)(index, &read.buf[start..end]) {
                    continue;
                }
                tried = pass.planned.get(next).map(|first| {
                    let whole = first.range.end >= end;
                    let physical = Physical(first.physical.0 + (start - first.range.start) as u64);
                    let place = (first.device.devid, physical);
                    self.record(
                        read.logical.0 + start as u64,
                        end - start,
                        first.mirror,
                        place,
                    );
                    (first.mirror, place, whole)
                });
            }
            let found = self.read_from_others(read, index, start..end, tried);
            if let Err(attempts) = found {
                self.read_errors.add_unrecovered();
                failure.get_or_insert(ReadFailure {
                    logical: Logical(read.logical.0.wrapping_add(start as u64)),
                    len: (end - start) as u64,
                    index,
                    attempts,
                });
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Reads one block from each mirror until it is valid, and repairs the others if the read does so. `tried` is the mirror that failed in the first pass, its
    /// place, and whether it provided the whole block.
    fn read_from_others(
        &self,
        read: &mut CheckedRead<'_>,
        index: usize,
        range: Range<usize>,
        tried: Option<(usize, (DevId, Physical), bool)>,
    ) -> Result<(), Vec<Attempt>> {
        let mut attempts = Vec::new();
        if let Some((mirror, place, _)) = tried {
            attempts.push(Attempt {
                mirror,
                place: Some(place),
                problem: AttemptProblem::Content,
            });
        }
        let logical = Logical(read.logical.0.wrapping_add(range.start as u64));
        let chunk = match self.chunk_map.get(logical) {
            Ok(chunk) => chunk,
            Err(error) => {
                attempts.push(Attempt {
                    mirror: 0,
                    place: None,
                    problem: error.into(),
                });
                return Err(attempts);
            }
        };
        let offset = logical.0 - chunk.logical().0;
        for mirror in self.mirrors_in_order(&chunk, offset, range.len() as u64) {
            // Skip the mirror of the first pass, unless it provided only a part of the block.
            if matches!(tried, Some((done, _, true)) if done == mirror) {
                continue;
            }
            // With parity, further mirrors are reconstructions; the direct piece is reported as their place.
            let direct = if chunk.has_parity() { 1 } else { mirror };
            let piece = chunk.piece(offset, range.len() as u64, direct);
            let place = (piece.devid, piece.physical);
            let block = &mut read.buf[range.clone()];
            let problem = match self.read_mirror(logical, block, mirror) {
                Ok(()) if (read.good)(index, block) => {
                    if read.repairs {
                        self.repair_mirrors(logical, block, &attempts, Some(mirror));
                    }
                    return Ok(());
                }
                Ok(()) => {
                    self.record(logical.0, range.len(), mirror, place);
                    AttemptProblem::Content
                }
                Err(error) => {
                    self.record_device_error(&error, logical, range.len(), mirror, place);
                    AttemptProblem::Device(error)
                }
            };
            attempts.push(Attempt {
                mirror,
                place: Some(place),
                problem,
            });
        }
        let block = &mut read.buf[range.clone()];
        // The parts of a block that spans stripes may be valid on different mirrors.
        let spans = chunk.piece(offset, range.len() as u64, 1).len < range.len() as u64;
        if spans && self.read_mixed(logical, block).is_ok() && (read.good)(index, block) {
            if read.repairs {
                self.repair_mirrors(logical, block, &attempts, None);
            }
            return Ok(());
        }
        Err(attempts)
    }

    fn record(&self, logical: u64, len: usize, mirror: usize, place: (DevId, Physical)) {
        self.add_read_error(ReadErrorRecord {
            logical: Logical(logical),
            len: len as u64,
            mirror,
            devid: place.0,
            physical: place.1,
            kind: ReadErrorKind::Content,
        });
    }

    fn record_device_error(
        &self,
        error: &DeviceError,
        logical: Logical,
        len: usize,
        mirror: usize,
        place: (DevId, Physical),
    ) {
        let kind = match error {
            DeviceError::Missing { .. } => return,
            DeviceError::Read { source, .. } => ReadErrorKind::Io(source.to_string()),
            other => ReadErrorKind::Rebuild(other.to_string()),
        };
        self.add_read_error(ReadErrorRecord {
            logical,
            len: len as u64,
            mirror,
            devid: place.0,
            physical: place.1,
            kind,
        });
    }
}

/// Reads all planned pieces in one batch for each device.
fn run_first_pass(reads: &mut [CheckedRead<'_>], passes: &mut [FirstPass]) {
    let mut batches: BTreeMap<DevId, Batch<'_>> = BTreeMap::new();
    for (read, pass) in reads.iter_mut().zip(passes) {
        let mut rest: &mut [u8] = read.buf;
        let mut at = 0;
        for planned in &mut pass.planned {
            let (_, from) = rest.split_at_mut(planned.range.start - at);
            let (part, after) = from.split_at_mut(planned.range.len());
            at = planned.range.end;
            rest = after;
            let batch = batches.entry(planned.device.devid).or_default();
            batch.reads.push(DeviceRead::new(planned.physical.0, part));
            batch.outcomes.push(&mut planned.outcome);
            batch.device = Some(Arc::clone(&planned.device));
        }
    }
    run_batches(&mut batches.into_values().collect::<Vec<_>>());
}

/// Executes batches of reads. Batches of files are queued together, so that all devices work in parallel.
fn run_batches(batches: &mut [Batch<'_>]) {
    let mut requests = Vec::new();
    for batch in batches.iter_mut() {
        let Some(block) = batch.device.as_ref().and_then(|device| device.block()) else {
            continue;
        };
        match (block.file(), batch.reads.as_mut_slice()) {
            (Some(file), reads) => queue_reads(file, block.len_bytes(), reads, &mut requests),
            (None, [read]) => read.result = block.read_at(read.buf, read.offset),
            (None, reads) => block.read_batch(reads),
        }
    }
    crate::uring::run(&mut requests);
    drop(requests);
    for batch in batches {
        for (read, outcome) in batch.reads.drain(..).zip(&mut batch.outcomes) {
            **outcome = read.result;
        }
    }
}

#[derive(Default)]
struct Batch<'a> {
    device: Option<Arc<PoolDevice>>,
    reads: Vec<DeviceRead<'a>>,
    outcomes: Vec<&'a mut io::Result<()>>,
}

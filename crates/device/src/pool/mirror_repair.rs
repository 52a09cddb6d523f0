//! Writes to single mirrors, and the repair of damaged mirrors by reads.
//!
//! A read that finds a good mirror after a damaged one writes the good bytes to the damaged one, as the kernel does.
//! The next flush makes them durable.
//!
//! Invariants
//! - MIRROR-REPAIR-1: only bytes that `good` has accepted are written, and only to mirrors that failed in the same read.
//! - MIRROR-REPAIR-2: a pool opened for reading is never repaired. No repair is in progress before
//!   `allow_mirror_repair`, or when `end_mirror_repair` has returned.
//! - MIRROR-REPAIR-3: nothing else writes the range until the repair ends. The caller of the read guarantees this: it
//!   keeps the space from being reused, and bytes with a checksum are never overwritten in place.
//! - MIRROR-REPAIR-4: a member of a row with parity is written by its scrub only, while nothing else writes the volume.
//!
//! Locks: `is_allowed` shared during the writes; only device IO under it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use ubtrfs_format::ids::Logical;

use super::Pool;
use super::device_errors::is_told;
use crate::access::Access;
use crate::chunk_map::{MappedChunk, STRIPE_LEN};
use crate::error::{Attempt, AttemptProblem, DeviceError};
use crate::nonblocking;
use crate::stripes::Piece;

/// Whether reads may repair mirrors, and how many they have repaired.
#[derive(Debug, Default)]
pub(super) struct MirrorRepairs {
    is_allowed: RwLock<bool>,
    repaired: AtomicU64,
    failed: AtomicU64,
}

impl Pool {
    /// Allows reads to repair damaged mirrors. A pool opened for reading stays unchanged.
    pub fn allow_mirror_repair(&self) {
        *self.mirror_repairs.is_allowed.write() = self.options.access == Access::Write;
    }

    /// Forbids repairs, and waits for those in progress.
    pub fn end_mirror_repair(&self) {
        *self.mirror_repairs.is_allowed.write() = false;
    }

    /// Returns how often a read has rewritten a damaged mirror of a data sector or a tree block.
    pub fn repaired_mirrors(&self) -> u64 {
        self.mirror_repairs.repaired.load(Ordering::Relaxed)
    }

    /// Writes `buf` at `logical` to mirror `mirror`, counted from 1, and to no other. Durable after the next
    /// [`Pool::flush`]. A failure is not counted as an error of the device.
    ///
    /// The caller guarantees that nothing else writes, discards or reuses the range in the meantime
    /// (MIRROR-REPAIR-3). For data without checksums this requires a block group that is closed for nocow writers.
    ///
    /// # Errors
    /// No such mirror; a chunk with parity; a device that is missing or belongs to another volume; a failed write.
    pub fn write_mirror(
        &self,
        logical: Logical,
        buf: &[u8],
        mirror: usize,
    ) -> Result<(), DeviceError> {
        nonblocking::check()?;
        let mut done = 0;
        while done < buf.len() {
            let at = logical
                .checked_add(done as u64)
                .ok_or(DeviceError::NoChunk { logical })?;
            let chunk = self.chunk_map.get(at)?;
            if chunk.has_parity() {
                return Err(DeviceError::ParityWrite {
                    logical: chunk.logical(),
                });
            }
            let mirrors = chunk.mirrors();
            if mirror == 0 || mirror > mirrors {
                return Err(DeviceError::NoMirror {
                    logical: at,
                    mirror,
                    mirrors,
                });
            }
            let rest = (buf.len() - done) as u64;
            for piece in chunk.pieces(at.0 - chunk.logical().0, rest, mirror) {
                let part = &buf[done..done + piece.len as usize];
                self.write_piece(&chunk, &piece, part)?;
                done += part.len();
            }
        }
        Ok(())
    }

    /// Writes `buf` like [`Pool::write_mirror`] if repairs are allowed, and returns whether they are.
    ///
    /// # Errors
    /// As [`Pool::write_mirror`].
    pub fn repair_mirror(
        &self,
        logical: Logical,
        buf: &[u8],
        mirror: usize,
    ) -> Result<bool, DeviceError> {
        // MIRROR-REPAIR-2: the guard is held until the write is done.
        let is_allowed = self.mirror_repairs.is_allowed.read();
        if *is_allowed {
            self.write_mirror(logical, buf, mirror)?;
        }
        Ok(*is_allowed)
    }

    /// Writes `buf` at `within` bytes into a member of the row that contains `logical`, if repairs are allowed. Returns
    /// whether they are. The other members are not updated.
    ///
    /// The caller guarantees that nothing else writes to the volume (MIRROR-REPAIR-4).
    ///
    /// # Errors
    /// A chunk without parity, or an end outside of the member; a missing device; a failed write.
    pub fn repair_row_member(
        &self,
        logical: Logical,
        member: usize,
        within: u64,
        buf: &[u8],
    ) -> Result<bool, DeviceError> {
        nonblocking::check()?;
        let is_allowed = self.mirror_repairs.is_allowed.read();
        if !*is_allowed {
            return Ok(false);
        }
        let chunk = self.chunk_map.get(logical)?;
        let len = buf.len() as u64;
        if !chunk.has_parity() || within.saturating_add(len) > STRIPE_LEN {
            return Err(DeviceError::NoCopy { logical });
        }
        let row = chunk.row(logical.0 - chunk.logical().0);
        if member >= row.members {
            return Err(DeviceError::NoCopy { logical });
        }
        let (devid, physical) = chunk.row_place(row, member, within);
        let piece = Piece {
            logical,
            len,
            stripe: row.stripe(member),
            devid,
            physical,
        };
        self.write_piece(&chunk, &piece, buf)?;
        Ok(true)
    }

    fn write_piece(
        &self,
        chunk: &MappedChunk,
        piece: &Piece,
        part: &[u8],
    ) -> Result<(), DeviceError> {
        let device = self
            .present(&chunk.stripes()[piece.stripe])
            .filter(|device| device.is_own(&self.superblock));
        let found = device.as_ref();
        let (Some(block), Some(path)) = (
            found.and_then(|device| device.block()),
            found.and_then(|device| device.path()),
        ) else {
            return Err(DeviceError::NoCopy {
                logical: piece.logical,
            });
        };
        block
            .write_at(part, piece.physical.0)
            .map_err(|source| DeviceError::WriteRaw {
                path: path.to_owned(),
                offset: piece.physical.0,
                len: part.len() as u64,
                source,
            })?;
        self.count_written(part.len() as u64);
        Ok(())
    }

    /// Writes verified bytes to the mirrors that failed in `attempts`, except for `sound`. Failures are only logged,
    /// because the read has succeeded.
    pub(super) fn repair_mirrors(
        &self,
        logical: Logical,
        good: &[u8],
        attempts: &[Attempt],
        sound: Option<usize>,
    ) {
        let repairs = &self.mirror_repairs;
        // MIRROR-REPAIR-2: the guard is held until the writes are done.
        let is_allowed = repairs.is_allowed.read();
        if !*is_allowed {
            return;
        }
        let damaged = attempts.iter().filter(|attempt| attempt.is_damage());
        // A set, because a mirror may have failed in a batch and again on its own.
        let damaged: BTreeSet<usize> = damaged.map(|attempt| attempt.mirror).collect();
        // MIRROR-REPAIR-1
        for mirror in damaged.into_iter().filter(|&mirror| Some(mirror) != sound) {
            match self.write_mirror(logical, good, mirror) {
                Ok(()) => {
                    let count = repairs.repaired.fetch_add(1, Ordering::Relaxed) + 1;
                    if is_told(count) {
                        tracing::info!(%logical, len = good.len(), mirror, count, "repaired a damaged mirror");
                    }
                }
                Err(error) => {
                    let count = repairs.failed.fetch_add(1, Ordering::Relaxed) + 1;
                    if is_told(count) {
                        tracing::warn!(%logical, len = good.len(), mirror, count, %error, "a damaged mirror stays damaged");
                    }
                }
            }
        }
    }
}

impl Attempt {
    /// Returns whether the mirror's device is present, and its bytes are damaged or unreadable.
    fn is_damage(&self) -> bool {
        matches!(
            self.problem,
            AttemptProblem::Content | AttemptProblem::Device(DeviceError::Read { .. })
        )
    }
}

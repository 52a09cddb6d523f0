//! The mapping of a chunk's bytes to stripes: pure arithmetic, no IO.
//!
//! Offsets are relative to the chunk. A range is split into [`Piece`]s, each contiguous on one stripe. Profiles with
//! parity are also divided into [`Row`]s: `STRIPE_LEN` bytes on each device. One or two members of each row, in
//! rotation, hold P and Q.

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical, Physical};

use crate::chunk_map::{MappedChunk, STRIPE_LEN};

#[cfg(test)]
mod tests;

/// A contiguous part of a chunk on one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub logical: Logical,
    pub len: u64,
    /// Index into the chunk's stripes.
    pub stripe: usize,
    pub devid: DevId,
    pub physical: Physical,
}

/// A full stripe (row) of a chunk with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index within the chunk.
    pub number: u64,
    /// Number of data members; P follows as member `data`, Q as member `data + 1`.
    pub data: usize,
    pub members: usize,
}

impl Row {
    /// Returns a member's index into the chunk's stripes. Members are data in logical order, then P, then Q.
    pub fn stripe(&self, member: usize) -> usize {
        ((self.number + member as u64) % self.members as u64) as usize
    }
}

impl MappedChunk {
    /// Returns the number of mirrors: copies, or with parity the direct read and the reconstructions.
    ///
    /// The numbering is the kernel's: RAID5 has 2; RAID6 has as many as stripes, see
    /// [`MappedChunk::excluded_member`].
    pub fn mirrors(&self) -> usize {
        match self.profile {
            Profile::Raid5 => 2,
            Profile::Raid6 => self.stripes.len(),
            other => other.copies(),
        }
    }

    /// Returns the number of stripes with distinct data.
    pub fn data_stripes(&self) -> usize {
        match self.profile {
            Profile::Single | Profile::Dup => 1,
            Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => 1,
            Profile::Raid0 => self.stripes.len(),
            Profile::Raid10 => self.stripes.len() / 2,
            Profile::Raid5 => self.stripes.len() - 1,
            Profile::Raid6 => self.stripes.len() - 2,
        }
    }

    /// Returns the number of bytes that the chunk occupies on each stripe.
    pub fn stripe_bytes(&self) -> u64 {
        let data = self.data_stripes() as u64;
        if data == 1 {
            return self.len_bytes;
        }
        let whole = self.len_bytes / (data * STRIPE_LEN);
        let rest = self.len_bytes % (data * STRIPE_LEN);
        whole * STRIPE_LEN + rest.min(STRIPE_LEN)
    }

    /// Returns whether mirrors after the first are reconstructed from parity.
    pub fn has_parity(&self) -> bool {
        self.profile.parities() > 0
    }

    /// Returns the first piece of `len` bytes at `offset` on mirror `mirror` (from 1).
    ///
    /// With parity, all mirrors have the same direct piece, which is the basis of the reconstruction.
    pub fn piece(&self, offset: u64, len: u64, mirror: usize) -> Piece {
        debug_assert!(offset < self.len_bytes && mirror >= 1);
        let len = len.min(self.len_bytes - offset);
        let number = offset / STRIPE_LEN;
        let within = offset % STRIPE_LEN;
        let (stripe, row) = match self.profile {
            Profile::Single => return self.whole_piece(offset, len, 0),
            Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
                return self.whole_piece(offset, len, mirror - 1);
            }
            Profile::Raid0 => {
                let count = self.stripes.len() as u64;
                (number % count, number / count)
            }
            Profile::Raid10 => {
                let groups = self.stripes.len() as u64 / 2;
                (number % groups * 2 + (mirror - 1) as u64, number / groups)
            }
            Profile::Raid5 | Profile::Raid6 => {
                let data = self.data_stripes() as u64;
                let row = self.row(offset);
                (row.stripe((number % data) as usize) as u64, row.number)
            }
        };
        let stripe = stripe as usize;
        Piece {
            logical: Logical(self.logical.0 + offset),
            len: len.min(STRIPE_LEN - within),
            stripe,
            devid: self.stripes[stripe].devid,
            physical: Physical(self.stripes[stripe].physical.0 + row * STRIPE_LEN + within),
        }
    }

    fn whole_piece(&self, offset: u64, len: u64, stripe: usize) -> Piece {
        Piece {
            logical: Logical(self.logical.0 + offset),
            len,
            stripe,
            devid: self.stripes[stripe].devid,
            physical: Physical(self.stripes[stripe].physical.0 + offset),
        }
    }

    /// Returns the pieces of `len` bytes at `offset` in logical order, up to the chunk's end.
    pub fn pieces(&self, offset: u64, len: u64, mirror: usize) -> impl Iterator<Item = Piece> + '_ {
        let end = offset.saturating_add(len).min(self.len_bytes);
        let mut at = offset;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let piece = self.piece(at, end - at, mirror);
                at += piece.len;
                piece
            })
        })
    }

    /// Returns the row that contains `offset`; only for profiles with parity.
    pub fn row(&self, offset: u64) -> Row {
        let data = self.data_stripes();
        Row {
            number: offset / STRIPE_LEN / data as u64,
            data,
            members: self.stripes.len(),
        }
    }

    /// Returns the member that contains `offset` in its row; only for profiles with parity.
    pub fn row_member(&self, offset: u64) -> usize {
        (offset / STRIPE_LEN % self.data_stripes() as u64) as usize
    }

    /// Returns the device and offset of a row member's byte at `within` bytes into its stripe.
    pub fn row_place(&self, row: Row, member: usize, within: u64) -> (DevId, Physical) {
        let stripe = &self.stripes[row.stripe(member)];
        let physical = stripe.physical.0 + row.number * STRIPE_LEN + within;
        (stripe.devid, Physical(physical))
    }

    /// Returns the member that RAID6 mirrors above 2 distrust in addition to `wanted`. By the kernel's numbering it
    /// is P for mirror 3, then the data stripes from the last one down.
    pub fn excluded_member(&self, wanted: usize, mirror: usize) -> Option<usize> {
        if self.profile != Profile::Raid6 || mirror <= 2 {
            return None;
        }
        let member = (self.stripes.len() + 1).checked_sub(mirror)?;
        if member <= wanted {
            member.checked_sub(1)
        } else {
            Some(member)
        }
    }
}

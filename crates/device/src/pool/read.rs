//! Reads from one mirror, and reconstruction from parity.

use ubtrfs_format::ids::{Logical, Physical};

use super::Pool;
use crate::chunk_map::{MappedChunk, STRIPE_LEN};
use crate::error::DeviceError;
use crate::nonblocking;
use crate::parity;
use crate::read_errors::{ReadErrorKind, ReadErrorRecord};
use crate::stripes::Piece;

impl Pool {
    /// Returns the number of mirrors of `logical`: copies, or with parity the direct read and reconstructions.
    pub fn mirrors(&self, logical: Logical) -> Result<usize, DeviceError> {
        Ok(self.chunk_map.get(logical)?.mirrors())
    }

    /// Fills `buf` from mirror `mirror`, counted from 1. After an error the contents of `buf` are unspecified.
    pub fn read_mirror(
        &self,
        logical: Logical,
        buf: &mut [u8],
        mirror: usize,
    ) -> Result<(), DeviceError> {
        self.for_each_piece(logical, buf, |chunk, at, part| {
            let mirrors = chunk.mirrors();
            if mirror == 0 || mirror > mirrors {
                return Err(DeviceError::NoMirror {
                    logical: at,
                    mirror,
                    mirrors,
                });
            }
            self.read_piece(chunk, at, part, mirror)
        })
    }

    /// Reads each piece from the first mirror that can provide it. The pieces of a range that spans stripes may come
    /// from different mirrors.
    pub(super) fn read_mixed(&self, logical: Logical, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.for_each_piece(logical, buf, |chunk, at, part| {
            let offset = at.0 - chunk.logical().0;
            let mut mirrors = self
                .mirrors_in_order(chunk, offset, part.len() as u64)
                .into_iter();
            let first = self.read_piece(chunk, at, part, mirrors.next().unwrap_or(1));
            mirrors.fold(first, |outcome, mirror| {
                outcome.or_else(|_| self.read_piece(chunk, at, part, mirror))
            })
        })
    }

    /// Calls `each` for every part of `buf` that is on one stripe, with its address.
    fn for_each_piece(
        &self,
        logical: Logical,
        buf: &mut [u8],
        mut each: impl FnMut(&MappedChunk, Logical, &mut [u8]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < buf.len() {
            let at = logical
                .checked_add(done as u64)
                .ok_or(DeviceError::NoChunk { logical })?;
            let chunk = self.chunk_map.get(at)?;
            let offset = at.0 - chunk.logical().0;
            for piece in chunk.pieces(offset, (buf.len() - done) as u64, 1) {
                // A piece is never longer than the buffer.
                let len = piece.len as usize;
                each(&chunk, piece.logical, &mut buf[done..done + len])?;
                done += len;
            }
        }
        Ok(())
    }

    /// Reads a part that is on one stripe, from a valid mirror number of the chunk.
    fn read_piece(
        &self,
        chunk: &MappedChunk,
        at: Logical,
        buf: &mut [u8],
        mirror: usize,
    ) -> Result<(), DeviceError> {
        let offset = at.0 - chunk.logical().0;
        let rebuilt = chunk.has_parity() && mirror > 1;
        let piece = chunk.piece(offset, buf.len() as u64, if rebuilt { 1 } else { mirror });
        if rebuilt {
            self.rebuild(chunk, &piece, mirror, buf)
        } else {
            self.read_stripe(chunk, piece.stripe, piece.physical, piece.logical, buf)
        }
    }

    fn read_stripe(
        &self,
        chunk: &MappedChunk,
        stripe: usize,
        physical: Physical,
        logical: Logical,
        buf: &mut [u8],
    ) -> Result<(), DeviceError> {
        let stripe = &chunk.stripes()[stripe];
        let device = self.present(stripe);
        let block = device
            .as_ref()
            .and_then(|device| device.block())
            .ok_or_else(|| stripe.missing())?;
        block
            .read_at(buf, physical.0)
            .map_err(|source| DeviceError::Read {
                devid: stripe.devid,
                physical,
                logical,
                len: buf.len() as u64,
                source,
            })
    }

    /// Reconstructs a piece, which is within one stripe, from the other members of its row.
    fn rebuild(
        &self,
        chunk: &MappedChunk,
        piece: &Piece,
        mirror: usize,
        buf: &mut [u8],
    ) -> Result<(), DeviceError> {
        // Reconstruction reads many members, and a member that would block must not count as lost.
        nonblocking::check()?;
        let offset = piece.logical.0 - chunk.logical().0;
        let row = chunk.row(offset);
        let within = offset % STRIPE_LEN;
        let wanted = chunk.row_member(offset);
        let mut lost = vec![wanted];
        lost.extend(chunk.excluded_member(wanted, mirror));
        let mut members = vec![Vec::new(); row.members];
        let mut parities = row.members - row.data;
        for member in 0..row.members {
            // If P and all other data members are available, Q is not needed.
            if member == row.data + 1 && lost.len() == 1 {
                members.truncate(member);
                parities = 1;
                break;
            }
            members[member] = vec![0; buf.len()];
            if lost.contains(&member) {
                continue;
            }
            let (devid, physical) = chunk.row_place(row, member, within);
            let stripe = row.stripe(member);
            let read =
                self.read_stripe(chunk, stripe, physical, piece.logical, &mut members[member]);
            if let Err(error) = read {
                if let DeviceError::Read { source, .. } = &error {
                    self.add_read_error(ReadErrorRecord {
                        logical: piece.logical,
                        len: piece.len,
                        mirror,
                        devid,
                        physical,
                        kind: ReadErrorKind::Io(source.to_string()),
                    });
                }
                lost.push(member);
            }
            if lost.len() > parities {
                break;
            }
        }
        parity::rebuild(&mut members, parities, &lost).map_err(|_| DeviceError::Rebuild {
            logical: piece.logical,
            lost: lost.len(),
            parities,
        })?;
        buf.copy_from_slice(&members[wanted]);
        Ok(())
    }
}

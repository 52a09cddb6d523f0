//! Ranges of devices one after the other: linear arrays, and the segments of an LVM volume.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use crate::copies::{CopyMap, Place};
use crate::fan_out::Devices;

/// A range of a device.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[derive(Debug)]
pub(crate) struct Concat {
    devices: Vec<Option<Arc<dyn BlockDevice>>>,
    /// The offset of each piece on its device.
    offsets: Vec<u64>,
    /// The offset of the end of each piece in the whole.
    ends: Vec<u64>,
}

impl Concat {
    /// Joins pieces. Returns None if the whole is longer than a device can be.
    pub(crate) fn new(pieces: Vec<Piece>) -> Option<Concat> {
        let mut concat = Concat {
            devices: Vec::new(),
            offsets: Vec::new(),
            ends: Vec::new(),
        };
        let mut end = 0u64;
        for piece in pieces {
            end = end.checked_add(piece.len)?;
            piece.offset.checked_add(piece.len)?;
            concat.devices.push(Some(piece.device));
            concat.offsets.push(piece.offset);
            concat.ends.push(end);
        }
        Some(concat)
    }
}

impl CopyMap for Concat {
    fn len_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn devices(&self) -> &Devices {
        &self.devices
    }

    fn copies(&self) -> usize {
        1
    }

    fn place(&self, offset: u64, _: usize) -> Place {
        let piece = self.ends.partition_point(|&end| end <= offset);
        let start = piece
            .checked_sub(1)
            .map_or(0, |previous| self.ends[previous]);
        Place {
            device: piece,
            offset: self.offsets[piece] + (offset - start),
            len: self.ends[piece] - offset,
        }
    }
}

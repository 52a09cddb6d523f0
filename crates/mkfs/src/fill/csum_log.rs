//! The items of the checksum tree, collected as data is placed.
//!
//! Not here: the computation of sums (`encode`).

use std::io::{self, Read};

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_spill::Log;

use super::scratch::Scratch;
use crate::error::MkfsError;
use crate::files::Push;
use crate::options::Geometry;

/// Sums of sectors in address order.
#[derive(Debug)]
pub(super) struct CsumLog {
    sectorsize: u64,
    csum_type: CsumType,
    /// The kernel's limit for an item.
    max_item_bytes: usize,
    log: Log,
    /// The address of the last item, which may be extended.
    start: Logical,
    sums: Vec<u8>,
}

impl CsumLog {
    pub(super) fn new(geometry: &Geometry, scratch: &Scratch) -> CsumLog {
        let csum_type = geometry.csum_type;
        let room = leaf_data_size(geometry.nodesize as usize) - 2 * ITEM_HEAD_SIZE;
        let sums = room / csum_type.size_bytes() - 1;
        CsumLog {
            sectorsize: geometry.sectorsize.into(),
            csum_type,
            max_item_bytes: sums * csum_type.size_bytes(),
            log: scratch.log(),
            start: Logical::default(),
            sums: Vec::new(),
        }
    }

    /// Returns the size of the sums of `data_bytes` bytes of data.
    pub(super) fn sum_bytes(&self, data_bytes: u64) -> usize {
        (data_bytes / self.sectorsize) as usize * self.csum_type.size_bytes()
    }

    /// Adds sums of sectors at an address greater than all previous ones.
    pub(super) fn push(&mut self, logical: Logical, mut sums: &[u8]) -> io::Result<()> {
        let sum_size = self.csum_type.size_bytes() as u64;
        let mut logical = logical.0;
        while !sums.is_empty() {
            let covered = self.sums.len() as u64 / sum_size * self.sectorsize;
            let is_full = self.sums.len() == self.max_item_bytes;
            if is_full || self.start.0 + covered != logical {
                self.close()?;
                self.start = Logical(logical);
            }
            let len = sums.len().min(self.max_item_bytes - self.sums.len());
            self.sums.extend_from_slice(&sums[..len]);
            sums = &sums[len..];
            logical += len as u64 / sum_size * self.sectorsize;
        }
        Ok(())
    }

    /// Ends the last item.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if !self.sums.is_empty() {
            self.log.push(&self.start.0.to_le_bytes())?;
            self.log.push(&(self.sums.len() as u32).to_le_bytes())?;
            self.log.push(&self.sums)?;
            self.sums.clear();
        }
        Ok(())
    }

    /// Pushes all items. The last one must have been ended.
    pub(super) fn each(&self, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut reader = self.log.read();
        let mut sums = Vec::new();
        while !reader.is_at_end() {
            let mut item = || {
                let start = u64::from_le_bytes(reader.array()?);
                let len = u32::from_le_bytes(reader.array()?);
                sums.resize(len as usize, 0);
                reader.read_exact(&mut sums)?;
                Ok(start)
            };
            let start = item().map_err(MkfsError::Scratch)?;
            let key = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, start);
            push(key, &sums)?;
        }
        Ok(())
    }
}

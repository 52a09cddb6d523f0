//! Chunks that alternate between devices: RAID0, and striped segments of LVM volumes.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use crate::copies::{CopyMap, Place};
use crate::fan_out::Devices;

/// A device with an offset or a length.
pub(crate) type Column = (Arc<dyn BlockDevice>, u64);

#[derive(Debug)]
pub(crate) struct Striped {
    columns: Vec<Option<Arc<dyn BlockDevice>>>,
    /// The offset of the first chunk on each device.
    starts: Vec<u64>,
    chunk_bytes: u64,
    rows: u64,
    /// The column of the first chunk.
    first: u64,
}

impl Striped {
    /// Creates stripes of `rows` chunks on each device, from its given offset on. Returns None if an offset would
    /// overflow, or without columns.
    pub(crate) fn new(
        columns: Vec<Column>,
        chunk_bytes: u64,
        rows: u64,
        first: u64,
    ) -> Option<Striped> {
        let column_bytes = rows.checked_mul(chunk_bytes)?;
        column_bytes.checked_mul(columns.len() as u64)?;
        for (_, start) in &columns {
            start.checked_add(column_bytes)?;
        }
        if columns.is_empty() || chunk_bytes == 0 {
            return None;
        }
        let first = first % columns.len() as u64;
        let (columns, starts) = columns
            .into_iter()
            .map(|(d, start)| (Some(d), start))
            .unzip();
        Some(Striped {
            columns,
            starts,
            chunk_bytes,
            rows,
            first,
        })
    }
}

impl CopyMap for Striped {
    fn len_bytes(&self) -> u64 {
        self.rows * self.chunk_bytes * self.columns.len() as u64
    }

    fn devices(&self) -> &Devices {
        &self.columns
    }

    fn copies(&self) -> usize {
        1
    }

    fn place(&self, offset: u64, _: usize) -> Place {
        let (chunk, within) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let columns = self.columns.len() as u64;
        let column = ((chunk % columns + self.first) % columns) as usize;
        Place {
            device: column,
            offset: self.starts[column] + chunk / columns * self.chunk_bytes + within,
            len: self.chunk_bytes - within,
        }
    }
}

//! A range of a device, as a device: a partition, or the data of a member of an array.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, DeviceRead};

use crate::fan_out::NotThere;
use crate::mapping::{Mapping, ReadOnly};

/// A range of a device, with ranges that have no valid data.
#[derive(Debug)]
pub(crate) struct Window {
    device: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
    /// Offsets within the window, ascending and disjoint.
    absent: Vec<Range<u64>>,
}

impl Window {
    /// Returns `len` bytes from `start` on. The part past the end of the device is absent.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        start: u64,
        len: u64,
        absent: impl IntoIterator<Item = Range<u64>>,
    ) -> Arc<dyn BlockDevice> {
        let end = device.len_bytes().saturating_sub(start);
        let mut ranges: Vec<Range<u64>> = absent.into_iter().collect();
        ranges.push(end..u64::MAX);
        ranges.sort_by_key(|range| range.start);
        let mut absent: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match absent.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => absent.push(range),
            }
        }
        Arc::new(ReadOnly(Window {
            device,
            start,
            len,
            absent,
        }))
    }

    fn is_absent(&self, offset: u64, len: usize) -> bool {
        let next = self.absent.partition_point(|range| range.end <= offset);
        let next = self.absent.get(next);
        next.is_some_and(|range| range.start < offset + len as u64)
    }
}

impl Mapping for Window {
    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn read(&self, reads: &mut [&mut DeviceRead<'_>]) {
        let mut present = Vec::with_capacity(reads.len());
        let mut below = Vec::with_capacity(reads.len());
        for (index, read) in reads.iter_mut().enumerate() {
            if self.is_absent(read.offset, read.buf.len()) {
                read.result = Err(NotThere.into());
            } else {
                present.push(index);
                below.push(DeviceRead::new(self.start + read.offset, &mut *read.buf));
            }
        }
        self.device.read_batch(&mut below);
        let results: Vec<_> = below.into_iter().map(|read| read.result).collect();
        for (index, result) in present.into_iter().zip(results) {
            reads[index].result = result;
        }
    }
}

//! The interface of a device: positioned reads and writes, single or in batches.
//!
//! Offsets and lengths are bytes. A request outside the device fails with [`PastEnd`] as the error's payload and
//! transfers nothing.
//!
//! On a thread that must not block (`nonblocking`), a read fails with `WouldBlock` unless its data is available at
//! once. Such a thread never writes.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use crate::claim::DeviceClaim;
use crate::discard_geometry::DiscardGeometry;
use crate::error::Holder;

/// A block device, an image file, or memory.
pub trait BlockDevice: Send + Sync + Debug {
    /// Returns the length of the device.
    fn len_bytes(&self) -> u64;

    /// Returns another user of the device, detected when it was opened for reading.
    fn holder(&self) -> Option<&Holder> {
        None
    }

    /// Fills `buf` from `offset`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Durable after the next [`BlockDevice::flush`].
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes zeros into the holes of a range, so that later writes need no new space. There must be no concurrent
    /// writes to the range. Returns the number of bytes written.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<u64> {
        let _ = (offset, len);
        Ok(0)
    }

    /// Makes all completed writes durable.
    fn flush(&self) -> io::Result<()>;

    /// Truncates or extends an image; new bytes read as zeros. Other devices keep their length, and only a greater one is
    /// an error.
    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        let _ = len_bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the granularity and size limit of discards. Returns None if the device is known not to support them.
    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        None
    }

    /// Discards a range; its later contents are unspecified.
    ///
    /// A device without geometry does not implement it.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Executes all discards, at queue depth if possible, and stores each outcome in its `result`.
    fn discard_batch(&self, discards: &mut [DeviceDiscard]) {
        for discard in discards {
            discard.result = self.discard(discard.offset, discard.len);
        }
    }

    /// Executes all reads, at queue depth if possible, and stores each outcome in its `result`.
    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        for read in reads {
            read.result = self.read_at(read.buf, read.offset);
        }
    }

    /// Returns the underlying open file, if any.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Returns the claim on a block device; internal to this crate.
    #[doc(hidden)]
    fn claim(&self) -> Option<&DeviceClaim> {
        None
    }

    /// Shares `len` bytes at `offset` with another file, without a copy (reflink).
    ///
    /// Requires that both files are on one file system with support for reflinks, and ranges of whole blocks. After
    /// an error nothing has changed.
    fn clone_range(
        &self,
        source: BorrowedFd<'_>,
        source_offset: u64,
        len: u64,
        offset: u64,
    ) -> io::Result<()> {
        let _ = (source, source_offset, len, offset);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Executes all writes, in any order, and stores each outcome in its `result`.
    fn write_batch(&self, writes: &mut [DeviceWrite<'_>]) {
        for write in writes {
            write.result = self.write_at(write.buf, write.offset);
        }
    }
}

/// One read of a batch.
#[derive(Debug)]
pub struct DeviceRead<'a> {
    /// Offset on the device.
    pub offset: u64,
    /// The buffer to fill.
    pub buf: &'a mut [u8],
    /// The outcome, once executed.
    pub result: io::Result<()>,
}

impl<'a> DeviceRead<'a> {
    /// Creates a pending read.
    pub fn new(offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            offset,
            buf,
            result: Ok(()),
        }
    }
}

/// One write of a batch.
#[derive(Debug)]
pub struct DeviceWrite<'a> {
    /// Offset on the device.
    pub offset: u64,
    /// The bytes to write.
    pub buf: &'a [u8],
    /// The outcome, once executed.
    pub result: io::Result<()>,
}

impl<'a> DeviceWrite<'a> {
    /// Creates a pending write.
    pub fn new(offset: u64, buf: &'a [u8]) -> Self {
        Self {
            offset,
            buf,
            result: Ok(()),
        }
    }
}

/// One discard of a batch.
#[derive(Debug)]
pub struct DeviceDiscard {
    /// Offset on the device.
    pub offset: u64,
    /// Number of bytes to discard.
    pub len: u64,
    /// The outcome, once executed.
    pub result: io::Result<()>,
}

impl DeviceDiscard {
    /// Creates a pending discard.
    pub fn new(offset: u64, len: u64) -> Self {
        Self {
            offset,
            len,
            result: Ok(()),
        }
    }
}

/// A request that exceeds the end of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {offset} are past the end of the device, which has {device_len}")]
pub struct PastEnd {
    /// Offset of the request.
    pub offset: u64,
    /// Length of the request.
    pub len: u64,
    /// Length of the device.
    pub device_len: u64,
}

impl PastEnd {
    /// Checks that a request is within a device of `device_len` bytes.
    pub fn check(offset: u64, len: u64, device_len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= device_len => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                PastEnd {
                    offset,
                    len,
                    device_len,
                },
            )),
        }
    }
}

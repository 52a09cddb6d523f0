//! The interface of a device: positioned reads and writes, alone or at depth.
//!
//! Offsets and lengths are bytes. A request outside the device fails with [`PastEnd`] as the error's
//! payload and moves nothing.
//!
//! A read by a thread that must not wait (`nonblocking`) fails with `WouldBlock` unless the device has it at once.
//! Nothing is written by such a thread.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use crate::claim::DeviceClaim;
use crate::discard_geometry::DiscardGeometry;
use crate::error::Holder;

/// A device, a file that stands for one, or memory.
pub trait BlockDevice: Send + Sync + Debug {
    /// Returns the length of the device.
    fn len_bytes(&self) -> u64;

    /// Returns the other user of the device, found when it was opened for reading.
    fn holder(&self) -> Option<&Holder> {
        None
    }

    /// Fills `buf` from `offset`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Durable after the next [`BlockDevice::flush`].
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes zeros where a range has no space below, so that later writes need none. Nothing else writes there meanwhile.
    /// Returns how many bytes it wrote.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<u64> {
        let _ = (offset, len);
        Ok(0)
    }

    /// Makes every write that has returned durable.
    fn flush(&self) -> io::Result<()>;

    /// Cuts or lengthens an image; what is new reads as zeros. Nothing else has a size that can change.
    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        let _ = len_bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the units of discards; None if the device takes none, as far as it can be known without one.
    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        None
    }

    /// Says that the range is not needed; it may read as anything from now on.
    ///
    /// A device without geometry need not have it.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does all discards, at depth where the device can, and leaves each one's outcome in its `result`.
    fn discard_batch(&self, discards: &mut [DeviceDiscard]) {
        for discard in discards {
            discard.result = self.discard(discard.offset, discard.len);
        }
    }

    /// Does all reads, at depth where the device can, and leaves each one's outcome in its `result`.
    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        for read in reads {
            read.result = self.read_at(read.buf, read.offset);
        }
    }

    /// Returns the open file behind it, if the kernel serves it as a file.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Returns the claim on a block device, which only this crate makes.
    #[doc(hidden)]
    fn claim(&self) -> Option<&DeviceClaim> {
        None
    }

    /// Lets `len` bytes at `offset` be those of another file, without a copy.
    ///
    /// Only where one file system holds both files and can share blocks, in whole blocks of it. Nothing has
    /// changed after an error.
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

    /// Does all writes, in no order, and leaves each one's outcome in its `result`.
    fn write_batch(&self, writes: &mut [DeviceWrite<'_>]) {
        for write in writes {
            write.result = self.write_at(write.buf, write.offset);
        }
    }
}

/// One read of a batch.
#[derive(Debug)]
pub struct DeviceRead<'a> {
    /// Where it begins on the device.
    pub offset: u64,
    /// The bytes that are filled.
    pub buf: &'a mut [u8],
    /// The outcome, once it was done.
    pub result: io::Result<()>,
}

impl<'a> DeviceRead<'a> {
    /// Creates a read that is to be done.
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
    /// Where it begins on the device.
    pub offset: u64,
    /// The bytes that are written.
    pub buf: &'a [u8],
    /// The outcome, once it was done.
    pub result: io::Result<()>,
}

impl<'a> DeviceWrite<'a> {
    /// Creates a write that is to be done.
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
    /// Where it begins on the device.
    pub offset: u64,
    /// How many bytes are discarded.
    pub len: u64,
    /// The outcome, once it was done.
    pub result: io::Result<()>,
}

impl DeviceDiscard {
    /// Creates a discard that is to be done.
    pub fn new(offset: u64, len: u64) -> Self {
        Self {
            offset,
            len,
            result: Ok(()),
        }
    }
}

/// A request that does not lie within its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {offset} are past the end of the device, which has {device_len}")]
pub struct PastEnd {
    /// Where the request begins.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
    /// How many bytes the device has.
    pub device_len: u64,
}

impl PastEnd {
    /// Passes a request that lies within a device of `device_len` bytes.
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

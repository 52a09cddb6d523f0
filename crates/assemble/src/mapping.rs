//! Read-only devices that are computed from other devices.
//!
//! Nothing here can write: [`ReadOnly`] is the only `BlockDevice` of this crate, and it refuses every write.

use std::fmt::Debug;
use std::io;

use ubtrfs_device::{BlockDevice, DeviceRead, PastEnd};

/// A layer that translates reads into reads of the devices below it.
pub(crate) trait Mapping: Send + Sync + Debug {
    fn len_bytes(&self) -> u64;

    /// Executes reads, which are within the device and not empty.
    fn read(&self, reads: &mut [&mut DeviceRead<'_>]);
}

/// The device of a layer.
#[derive(Debug)]
pub(crate) struct ReadOnly<M>(pub(crate) M);

impl<M: Mapping> BlockDevice for ReadOnly<M> {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut reads = [DeviceRead::new(offset, buf)];
        self.read_batch(&mut reads);
        let [read] = reads;
        read.result
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        let len_bytes = self.0.len_bytes();
        let mut within: Vec<&mut DeviceRead<'_>> = Vec::with_capacity(reads.len());
        for read in reads {
            read.result = PastEnd::check(read.offset, read.buf.len() as u64, len_bytes);
            if read.result.is_ok() && !read.buf.is_empty() {
                within.push(read);
            }
        }
        self.0.read(&mut within);
    }
}

//! A device in memory whose writes fail after some time.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use ubtrfs_device::{BlockDevice, MemDevice};

/// Accepts a number of writes, then fails.
#[derive(Debug)]
pub(crate) struct Failing<'a> {
    pub(crate) device: &'a MemDevice,
    pub(crate) left: AtomicUsize,
}

impl BlockDevice for Failing<'_> {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let take_one = |left: usize| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one);
        match taken {
            Ok(_) => self.device.write_at(buf, offset),
            Err(_) => Err(io::Error::other("no more writes")),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)
    }
}

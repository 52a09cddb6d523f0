//! A device without cached data: each read takes a while; the reads of a batch overlap.
//!
//! Nonblocking threads can read nothing from it. Writes take no time, and discards only if configured.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_device::{BlockDevice, DeviceRead, DiscardGeometry};

use super::discard_time::DiscardTime;

/// Number of concurrent reads.
const DEPTH: usize = 64;

#[derive(Debug)]
pub struct SlowDevice {
    inner: Arc<dyn BlockDevice>,
    delay: Duration,
    discards: Option<DiscardTime>,
    waits: AtomicU64,
}

impl SlowDevice {
    pub fn new(inner: Arc<dyn BlockDevice>, delay: Duration) -> SlowDevice {
        SlowDevice {
            inner,
            delay,
            discards: None,
            waits: AtomicU64::new(0),
        }
    }

    /// Enables the latency of discards.
    pub fn slow_discards(mut self, time: DiscardTime) -> SlowDevice {
        self.discards = Some(time);
        self
    }

    /// Returns how often a thread waited for a read, or for a group of concurrent reads.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn wait(&self) -> io::Result<()> {
        nonblocking::check()?;
        self.waits.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        Ok(())
    }
}

impl BlockDevice for SlowDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.wait()?;
        self.inner.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        for together in reads.chunks_mut(DEPTH) {
            let waited = self.wait();
            for read in together {
                read.result = match &waited {
                    Ok(()) => self.inner.read_at(read.buf, read.offset),
                    Err(error) => Err(error.kind().into()),
                };
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.inner.discard_geometry()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if let Some(time) = self.discards {
            thread::sleep(time.of(len));
        }
        self.inner.discard(offset, len)
    }
}

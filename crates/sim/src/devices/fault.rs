//! A device with injected faults.
//!
//! Faults can be added at any time and are checked in the order of their addition. Requests are counted from 0, per
//! kind, whether they fail or not; each request of a batch counts.
//!
//! To let every request of a run fail in turn: execute it once without faults, and then again for each fault of
//! `Counts::each_since`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, DiscardGeometry};

#[cfg(test)]
mod tests;

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th read fails.
    Read { nth: u64 },
    /// The n-th write fails without any change.
    Write { nth: u64 },
    /// The n-th flush fails.
    Flush { nth: u64 },
    /// The n-th discard fails.
    Discard { nth: u64 },
    /// Every discard fails with this errno; EOPNOTSUPP means that the device does not support discards.
    Discards { errno: i32 },
    /// Every read that touches the range fails: a bad sector.
    ReadRange { range: Range<u64> },
    /// Every write that touches the range fails.
    WriteRange { range: Range<u64> },
    /// Reads return this byte xored with `mask`: silent corruption.
    Corrupt { offset: u64, mask: u8 },
    /// Everything fails: the device was removed.
    Gone,
    /// The device is removed after this many requests of any kind.
    GoneAfter { requests: u64 },
}

/// Numbers of requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
}

impl Counts {
    pub fn total(self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Returns a fault for each request after `start`, which are the counts at the start of the run.
    pub fn each_since(self, start: Counts) -> impl Iterator<Item = Fault> {
        let reads = (start.reads..self.reads).map(|nth| Fault::Read { nth });
        let writes = (start.writes..self.writes).map(|nth| Fault::Write { nth });
        let flushes = (start.flushes..self.flushes).map(|nth| Fault::Flush { nth });
        let discards = (start.discards..self.discards).map(|nth| Fault::Discard { nth });
        reads.chain(writes).chain(flushes).chain(discards)
    }
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    counts: Counts,
}

#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

impl FaultDevice {
    pub fn new(inner: Arc<dyn BlockDevice>) -> FaultDevice {
        FaultDevice {
            inner,
            state: Mutex::default(),
        }
    }

    pub fn add(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Counts a request, and returns an error if a fault applies.
    fn pass(
        &self,
        count: impl FnOnce(&mut Counts) -> &mut u64,
        fails: impl Fn(&Fault, u64) -> bool,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let before = state.counts.total();
        let counter = count(&mut state.counts);
        let number = *counter;
        *counter += 1;
        let failing = state.faults.iter().find(|fault| match fault {
            Fault::Gone => true,
            Fault::GoneAfter { requests } => before >= *requests,
            fault => fails(fault, number),
        });
        match failing {
            Some(Fault::Discards { errno }) => Err(io::Error::from_raw_os_error(*errno)),
            Some(fault) => Err(io::Error::other(format!("planted fault: {fault:?}"))),
            None => Ok(()),
        }
    }
}

fn touches(range: &Range<u64>, offset: u64, len: usize) -> bool {
    offset < range.end && range.start < offset.saturating_add(len as u64)
}

impl BlockDevice for FaultDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let len = buf.len();
        self.pass(
            |counts| &mut counts.reads,
            |fault, number| match fault {
                Fault::Read { nth } => *nth == number,
                Fault::ReadRange { range } => touches(range, offset, len),
                _ => false,
            },
        )?;
        self.inner.read_at(buf, offset)?;
        for fault in &self.state.lock().faults {
            if let Fault::Corrupt { offset: at, mask } = fault
                && let Some(index) = at.checked_sub(offset)
                && let Some(byte) = buf.get_mut(index as usize)
            {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.pass(
            |counts| &mut counts.writes,
            |fault, number| match fault {
                Fault::Write { nth } => *nth == number,
                Fault::WriteRange { range } => touches(range, offset, buf.len()),
                _ => false,
            },
        )?;
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.pass(
            |counts| &mut counts.flushes,
            |fault, number| matches!(fault, Fault::Flush { nth } if *nth == number),
        )?;
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.inner.discard_geometry()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pass(
            |counts| &mut counts.discards,
            |fault, number| match fault {
                Fault::Discard { nth } => *nth == number,
                Fault::Discards { .. } => true,
                _ => false,
            },
        )?;
        self.inner.discard(offset, len)
    }
}

//! Devices that remember every request, and the images that a power cut could have left of them.
//!
//! A `Recorder` is the clock of all devices of a volume. Their writes, flushes and discards stand in one sequence,
//! with marks that the test puts between them ("operation 7 started", "the sync returned").
//! `Recording::crash_states` turns the sequence into device images.
//!
//! ```text
//! let recorder = Recorder::new();
//! let device = recorder.device(image);        // Arc<RecordDevice>, a BlockDevice
//! ... use the device; recorder.mark(n) ...
//! for state in recorder.recording().crash_states(&CrashPlan::new(seed)) {
//!     open(&state.devices); judge(state.marks());  // panic!("{state}") tells what landed
//! }
//! ```
//!
//! - RECORD-1: a request is in the sequence before it returns, and a mark before `mark` returns. A write after a
//!   mark was not finished when the mark was put.
//! - RECORD-2: a flush covers the requests that its device had in the sequence before it, and no other
//!   device's.
//! - RECORD-3: a discarded range is garbage that its event's number gives. A flush promises nothing of it.
//!
//! Not here: failing requests (`fault`; wrap it around a recorded device).

mod crash;
mod scramble;
#[cfg(test)]
mod tests;

pub use crash::{CrashPlan, CrashState, CrashStates, Cut, Landed, Landing};

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, DiscardGeometry, MemDevice, PastEnd};

use crate::Result;
use crate::error::At;
use crate::zeros::is_zero;
use scramble::scramble;

/// One entry of the sequence. `device` counts from 0 in the order of `Recorder::device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write {
        device: usize,
        offset: u64,
        data: Arc<[u8]>,
    },
    Discard {
        device: usize,
        offset: u64,
        len_bytes: u64,
    },
    /// A flush that succeeded.
    Flush {
        device: usize,
    },
    Mark(u64),
}

#[derive(Debug, Default)]
struct Log {
    /// The contents of each device when its recording began.
    starts: Vec<MemDevice>,
    events: Vec<Event>,
}

/// The clock that the recorded devices of a volume share. A clone is the same recorder.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Log>>);

impl Recorder {
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Creates a device that holds what `start` holds, and whose requests are recorded.
    pub fn device(&self, start: MemDevice) -> Arc<RecordDevice> {
        let mut log = self.0.lock();
        log.starts.push(start.clone());
        Arc::new(RecordDevice {
            number: log.starts.len() - 1,
            live: start,
            log: Arc::clone(&self.0),
        })
    }

    /// Puts a mark into the sequence; `oracle::Mark` has the ones that the crash oracle reads.
    pub fn mark(&self, mark: impl Into<u64>) {
        self.0.lock().events.push(Event::Mark(mark.into()));
    }

    /// Returns the sequence so far.
    pub fn recording(&self) -> Recording {
        let log = self.0.lock();
        Recording {
            starts: log.starts.clone(),
            events: log.events.clone(),
        }
    }
}

/// A device in memory whose requests are in its recorder's sequence.
#[derive(Debug)]
pub struct RecordDevice {
    number: usize,
    live: MemDevice,
    log: Arc<Mutex<Log>>,
}

impl RecordDevice {
    /// Copies the contents of the device as they are now, as after an orderly shutdown.
    pub fn snapshot(&self) -> MemDevice {
        let _log = self.log.lock();
        self.live.clone()
    }
}

impl BlockDevice for RecordDevice {
    fn len_bytes(&self) -> u64 {
        self.live.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.live.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let data = Arc::from(buf);
        let mut log = self.log.lock();
        // RECORD-1: the sequence is locked meanwhile.
        self.live.write_at(buf, offset)?;
        log.events.push(Event::Write {
            device: self.number,
            offset,
            data,
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let device = self.number;
        self.log.lock().events.push(Event::Flush { device });
        Ok(())
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.live.discard_geometry()
    }

    /// Fills the range with garbage, so that a reader cannot rely on what was there or on zeros.
    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        PastEnd::check(offset, len_bytes, self.live.len_bytes())?;
        let mut log = self.log.lock();
        scramble(&self.live, log.events.len(), offset..offset + len_bytes)?;
        log.events.push(Event::Discard {
            device: self.number,
            offset,
            len_bytes,
        });
        Ok(())
    }
}

const BLOCK_BYTES: u64 = 4096;

/// Writes what a device holds to a new file, with holes for zeros, so that the kernel can look at it.
pub fn save_image(device: &dyn BlockDevice, path: &Path) -> Result<()> {
    let file = File::create_new(path).at("create", path)?;
    file.set_len(device.len_bytes()).at("set length", path)?;
    let mut block = vec![0; BLOCK_BYTES as usize];
    for at in (0..device.len_bytes()).step_by(BLOCK_BYTES as usize) {
        block.resize((device.len_bytes() - at).min(BLOCK_BYTES) as usize, 0);
        device.read_at(&mut block, at).at("read image", path)?;
        if !is_zero(&block) {
            file.write_all_at(&block, at).at("write", path)?;
        }
    }
    Ok(())
}

/// A finished sequence.
#[derive(Clone, Debug)]
pub struct Recording {
    starts: Vec<MemDevice>,
    events: Vec<Event>,
}

impl Recording {
    /// Returns all events. Tests may look for rules of their own, such as a flush before each superblock.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn flushes(&self) -> usize {
        let is_flush = |event: &&Event| matches!(event, Event::Flush { .. });
        self.events.iter().filter(is_flush).count()
    }

    /// Returns images after power cuts, in the order of time.
    pub fn crash_states(&self, plan: &CrashPlan) -> CrashStates {
        CrashStates::new(self.clone(), plan)
    }
}

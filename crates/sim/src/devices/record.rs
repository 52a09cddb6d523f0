//! Devices that record every request, and the images that may result from a power cut.
//!
//! A `Recorder` is shared by all devices of a volume. Their writes, flushes and discards form one sequence, with
//! marks of the test in between ("operation 7 started", "the sync returned"). `Recording::crash_states` turns the
//! sequence into device images.
//!
//! ```text
//! let recorder = Recorder::new();
//! let device = recorder.device(image);        // Arc<RecordDevice>, a BlockDevice
//! ... use the device; recorder.mark(n) ...
//! for state in recorder.recording().crash_states(&CrashPlan::new(seed)) {
//!     open(&state.devices); judge(state.marks());  // panic!("{state}") lists the applied requests
//! }
//! ```
//!
//! - RECORD-1: a request is in the sequence before it returns, and a mark before `mark` returns. So a write after a
//!   mark was unfinished when the mark was added.
//! - RECORD-2: a flush covers the earlier requests of its own device in the sequence, and no others.
//! - RECORD-3: a discarded range contains garbage derived from its event's number. A flush does not cover it.
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

/// One entry of the sequence. `device` is an index, in the order of `Recorder::device`.
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
    /// A successful flush.
    Flush {
        device: usize,
    },
    Mark(u64),
}

#[derive(Debug, Default)]
struct Log {
    /// The contents of each device at the start of its recording.
    starts: Vec<MemDevice>,
    events: Vec<Event>,
}

/// The recorder shared by the devices of a volume. A clone refers to the same recorder.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Log>>);

impl Recorder {
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Creates a recorded device with the contents of `start`.
    pub fn device(&self, start: MemDevice) -> Arc<RecordDevice> {
        let mut log = self.0.lock();
        log.starts.push(start.clone());
        Arc::new(RecordDevice {
            number: log.starts.len() - 1,
            live: start,
            log: Arc::clone(&self.0),
        })
    }

    /// Adds a mark to the sequence; `oracle::Mark` defines the marks of the crash oracle.
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

/// A device in memory that records its requests.
#[derive(Debug)]
pub struct RecordDevice {
    number: usize,
    live: MemDevice,
    log: Arc<Mutex<Log>>,
}

impl RecordDevice {
    /// Copies the current contents of the device, as after an orderly shutdown.
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
        // RECORD-1: the sequence is locked during the write.
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

    /// Fills the range with garbage, so that a reader can rely neither on the old data nor on zeros.
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

/// Writes the contents of a device to a new sparse file, for checks by the kernel.
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
    /// Returns all events. Tests may check other rules, such as a flush before each superblock.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn flushes(&self) -> usize {
        let is_flush = |event: &&Event| matches!(event, Event::Flush { .. });
        self.events.iter().filter(is_flush).count()
    }

    /// Returns images after power cuts, in chronological order.
    pub fn crash_states(&self, plan: &CrashPlan) -> CrashStates {
        CrashStates::new(self.clone(), plan)
    }
}

//! Reads of several devices at once.
//!
//! A batch on one device is at queue depth already. Large requests read all devices concurrently, each on a thread of
//! its own; on a nonblocking thread all reads stay on it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ubtrfs_device::{BlockDevice, DeviceRead, nonblocking};

/// Requests below this size cost less than the start of a thread.
const CONCURRENT_BYTES: usize = 256 << 10;
const MAX_THREADS: usize = 16;

/// The devices of a layer; None is a missing one.
pub(crate) type Devices = [Option<Arc<dyn BlockDevice>>];

/// A part of a request, which is on one device.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The index of the device.
    pub(crate) device: usize,
    /// Offset on the device.
    pub(crate) offset: u64,
    pub(crate) buf: &'a mut [u8],
    /// The index of the request.
    pub(crate) request: usize,
    /// Offset of the part in the layer that is read.
    pub(crate) at: u64,
    /// The outcome, once executed.
    pub(crate) result: io::Result<()>,
}

/// A read of a device that is missing, or of a part of a member without valid data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data of this part is missing")]
pub(crate) struct NotThere;

impl From<NotThere> for io::Error {
    fn from(reason: NotThere) -> io::Error {
        io::Error::other(reason)
    }
}

/// Executes all parts.
pub(crate) fn read_parts(devices: &Devices, parts: &mut [Part<'_>]) {
    let bytes: usize = parts.iter().map(|part| part.buf.len()).sum();
    let mut by_device: BTreeMap<usize, Vec<&mut Part<'_>>> = BTreeMap::new();
    for part in parts {
        by_device.entry(part.device).or_default().push(part);
    }
    let is_concurrent = by_device.len() > 1 && bytes >= CONCURRENT_BYTES && !nonblocking::is_set();
    if !is_concurrent {
        for (device, parts) in by_device {
            read_device(devices, device, parts);
        }
        return;
    }
    let threads = by_device.len().min(MAX_THREADS);
    let queue = Mutex::new(by_device);
    let work = || {
        loop {
            let next = queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_first();
            match next {
                Some((device, parts)) => read_device(devices, device, parts),
                None => break,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without another thread, this one does all the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

fn read_device(devices: &Devices, device: usize, mut parts: Vec<&mut Part<'_>>) {
    let Some(Some(device)) = devices.get(device) else {
        for part in parts {
            part.result = Err(NotThere.into());
        }
        return;
    };
    let mut reads: Vec<DeviceRead<'_>> = parts
        .iter_mut()
        .map(|part| DeviceRead::new(part.offset, part.buf))
        .collect();
    device.read_batch(&mut reads);
    let results: Vec<io::Result<()>> = reads.into_iter().map(|read| read.result).collect();
    for (part, result) in parts.into_iter().zip(results) {
        part.result = result;
    }
}

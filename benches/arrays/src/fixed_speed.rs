//! Disks in memory that read one request after the other, each at a fixed speed.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ubtrfs_device::{BlockDevice, DeviceRead, MemDevice};

use crate::{CASES, assemble, report, speed};

const BYTES_PER_SECOND: f64 = 100e6;
const CONTENT_BYTES: usize = 48 << 20;

#[derive(Debug)]
struct SlowDisk {
    content: MemDevice,
    /// The end of the last read.
    busy_until: Mutex<Instant>,
}

impl SlowDisk {
    fn new(content: &[u8]) -> SlowDisk {
        SlowDisk {
            content: MemDevice::from_bytes(content),
            busy_until: Mutex::new(Instant::now()),
        }
    }

    fn wait_for(&self, len: usize) {
        let mut busy_until = self.busy_until.lock().expect("no reader has panicked");
        let start = busy_until.max(Instant::now());
        *busy_until = start + Duration::from_secs_f64(len as f64 / BYTES_PER_SECOND);
        std::thread::sleep(busy_until.saturating_duration_since(Instant::now()));
    }
}

impl BlockDevice for SlowDisk {
    fn len_bytes(&self) -> u64 {
        self.content.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.wait_for(buf.len());
        self.content.read_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        self.wait_for(reads.iter().map(|read| read.buf.len()).sum());
        self.content.read_batch(reads);
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Measures all cases. Returns whether all goals are reached.
pub(crate) fn run() -> bool {
    println!("disks of 100 MB/s in memory:");
    let content = vec![5; CONTENT_BYTES];
    let mut is_reached = true;
    for case in &CASES {
        let members = case.members(&content);
        let member = speed(&SlowDisk::new(&members[0]), members[0].len());
        let present = &members[case.missing..];
        let disks = present
            .iter()
            .map(|member| Arc::new(SlowDisk::new(member)) as Arc<dyn BlockDevice>);
        let array = assemble(disks);
        let wanted = member * case.data_disks as f64;
        is_reached &= report(case, speed(&*array, CONTENT_BYTES), wanted);
    }
    is_reached
}

//! The speed of sequential reads over RAID5, against members whose speed is limited.
//!
//! A machine under load fails it, so it runs only on request:
//! `cargo test -p ubtrfs-assemble --test speed -- --ignored --nocapture`.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ubtrfs_assemble::{Assembly, Disk};
use ubtrfs_device::{BlockDevice, DeviceRead, MemDevice};
use ubtrfs_sim::MdArray;

const MEMBERS: usize = 4;
const CONTENT_BYTES: usize = 48 << 20;
const REQUEST_BYTES: usize = 2 << 20;
const BYTES_PER_SECOND: f64 = 100e6;

/// A disk that reads one request after the other, each at a fixed speed.
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

/// Returns the speed of a sequential read in bytes per second.
fn speed(device: &dyn BlockDevice, len: usize) -> f64 {
    let mut buf = vec![0; REQUEST_BYTES];
    let start = Instant::now();
    for offset in (0..len).step_by(REQUEST_BYTES) {
        let len = REQUEST_BYTES.min(len - offset);
        device
            .read_at(&mut buf[..len], offset as u64)
            .expect("readable");
    }
    len as f64 / start.elapsed().as_secs_f64()
}

fn array(members: &[Vec<u8>]) -> Arc<dyn BlockDevice> {
    let disks = members.iter().map(|member| Disk {
        path: PathBuf::from("disk"),
        device: Arc::new(SlowDisk::new(member)),
    });
    let assembly = Assembly::of(disks);
    let array = assembly.layers().last().expect("an array");
    Arc::clone(array.device().expect("readable"))
}

#[test]
#[ignore = "measures time"]
fn raid5_is_as_fast_as_its_data_disks() {
    let content = vec![5; CONTENT_BYTES];
    let mut members = MdArray::new(5, 2, MEMBERS).write(&content);
    let member = speed(&SlowDisk::new(&members[0]), members[0].len());
    let wanted = member * (MEMBERS - 1) as f64;
    let whole = speed(&*array(&members), CONTENT_BYTES);
    members.remove(1);
    let degraded = speed(&*array(&members), CONTENT_BYTES);
    println!(
        "a member {:.0} MB/s, the array {:.0} MB/s ({:.2} of its data disks), degraded {:.0} MB/s ({:.2})",
        member / 1e6,
        whole / 1e6,
        whole / wanted,
        degraded / 1e6,
        degraded / wanted,
    );
    assert!(whole >= 0.8 * wanted);
    assert!(degraded >= 0.4 * wanted);
}

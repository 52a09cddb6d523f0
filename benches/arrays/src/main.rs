//! Sequential reads of a RAID5 and a RAID6, complete and degraded, against the speed of their members.
//!
//! `ubtrfs-bench-arrays [MIB]` in a release build; MIB is the size of the array, 384 by default. There are two parts:
//! - disks of a fixed speed in memory, which show whether members are read at the same time
//! - files below `TMPDIR` (default `/var/tmp`), against `dd` of one member, and of all members at the same time. Their
//!   pages are dropped before each read.
//!
//! The goals are a share of 0.8 of the speed of a member times the data disks, and half of that with a member missing.

mod fixed_speed;
mod on_files;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ubtrfs_assemble::{Assembly, Disk};
use ubtrfs_device::BlockDevice;
use ubtrfs_sim::MdArray;

const MEMBERS: usize = 4;
const REQUEST_BYTES: usize = 2 << 20;

/// An array to measure.
struct Case {
    name: &'static str,
    level: i32,
    data_disks: usize,
    missing: usize,
    goal: f64,
}

const CASES: [Case; 4] = [
    Case {
        name: "RAID5",
        level: 5,
        data_disks: 3,
        missing: 0,
        goal: 0.8,
    },
    Case {
        name: "RAID5, one member missing",
        level: 5,
        data_disks: 3,
        missing: 1,
        goal: 0.4,
    },
    Case {
        name: "RAID6",
        level: 6,
        data_disks: 2,
        missing: 0,
        goal: 0.8,
    },
    Case {
        name: "RAID6, two members missing",
        level: 6,
        data_disks: 2,
        missing: 2,
        goal: 0.4,
    },
];

impl Case {
    fn members(&self, content: &[u8]) -> Vec<Vec<u8>> {
        MdArray::new(self.level, 2, MEMBERS).write(content)
    }
}

fn main() {
    let mib = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let bytes = mib.unwrap_or(384_usize) << 20;
    let is_reached = fixed_speed::run() & on_files::run(bytes);
    println!(
        "goals: {}",
        if is_reached { "reached" } else { "not reached" }
    );
}

/// Returns the array on some disks.
fn assemble(disks: impl Iterator<Item = Arc<dyn BlockDevice>>) -> Arc<dyn BlockDevice> {
    let disks = disks.enumerate().map(|(number, device)| Disk {
        path: PathBuf::from(format!("disk{number}")),
        device,
    });
    let assembly = Assembly::of(disks);
    let array = assembly.layers().last().expect("an array");
    Arc::clone(array.device().expect("a readable array"))
}

/// Returns the speed of a sequential read in bytes per second.
fn speed(device: &dyn BlockDevice, len: usize) -> f64 {
    let mut buf = vec![0; REQUEST_BYTES];
    let start = Instant::now();
    for offset in (0..len).step_by(REQUEST_BYTES) {
        let len = REQUEST_BYTES.min(len - offset);
        let read = device.read_at(&mut buf[..len], offset as u64);
        read.expect("readable");
    }
    len as f64 / start.elapsed().as_secs_f64()
}

/// Prints the result of a case. Returns whether it reaches its goal.
fn report(case: &Case, speed: f64, wanted: f64) -> bool {
    let share = speed / wanted;
    let Case { name, goal, .. } = case;
    let (speed, wanted) = (speed / 1e6, wanted / 1e6);
    println!("  {name}: {speed:.0} MB/s of {wanted:.0} MB/s: {share:.2}, goal {goal}");
    share >= *goal
}

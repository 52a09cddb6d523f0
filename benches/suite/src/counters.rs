//! Counters of the machine: time of its CPUs, bytes written, memory.

use std::fs;
use std::ops::Sub;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

const SECTOR_BYTES: u64 = 512;

/// The requests to a device since its creation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceCounts {
    /// Requests; 0 where only bytes are counted.
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) discards: u64,
    pub(crate) discarded_bytes: u64,
}

impl DeviceCounts {
    pub(crate) fn of_loop(device: &Path) -> Result<DeviceCounts> {
        let name = device.file_name().context("a device has a name")?;
        let text = fs::read_to_string(Path::new("/sys/block").join(name).join("stat"))?;
        let fields: Vec<u64> = text
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        Ok(DeviceCounts {
            writes: field(4),
            written_bytes: field(6) * SECTOR_BYTES,
            discards: field(11),
            discarded_bytes: field(13) * SECTOR_BYTES,
        })
    }

    /// Parses the output of `filesystem stats --format json`. The kernel's count for a process is in whole folios of
    /// the page cache, even for small writes.
    pub(crate) fn of_ubtrfs(json: &str) -> Result<DeviceCounts> {
        let all: Value = serde_json::from_str(json)?;
        let written = &all["filesystem-stats"]["writer"]["device_bytes"];
        Ok(DeviceCounts {
            written_bytes: written.as_u64().context("no count of bytes")?,
            ..DeviceCounts::default()
        })
    }
}

impl Sub for DeviceCounts {
    type Output = DeviceCounts;

    fn sub(self, before: DeviceCounts) -> DeviceCounts {
        DeviceCounts {
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            discards: self.discards.saturating_sub(before.discards),
            discarded_bytes: self.discarded_bytes.saturating_sub(before.discarded_bytes),
        }
    }
}

/// Returns the busy time of all CPUs since boot, in seconds, for all processes.
pub(crate) fn cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq; stolen time is not ours.
    let busy: u64 = [0, 1, 2, 5, 6]
        .into_iter()
        .filter_map(|at| ticks.get(at))
        .sum();
    Ok(busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the peak memory of a process.
pub(crate) fn peak_memory_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

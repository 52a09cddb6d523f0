//! Medians and ratios.

use std::time::Duration;

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a table line: title, the kernel's figure, ours, and the ratio.
pub(crate) fn line(what: &str, unit: &str, kernel: f64, ours: f64, ratio: f64) {
    println!("{what:<34} kernel {kernel:>11.1} ours {ours:>11.1} {unit:<10} ratio {ratio:>6.2}");
}

/// Returns the quantile `part` of `sorted` latencies.
pub(crate) fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let at = (sorted.len() as f64 * part) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(at.min(last)).copied().unwrap_or_default()
}

/// Returns the peak memory of this process, in bytes.
pub(crate) fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

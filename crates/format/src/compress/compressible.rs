//! The heuristic that estimates from a sample whether data is compressible.
//!
//! The tests and their limits are the same as in the kernel's `btrfs_compress_heuristic`, so that both compress the
//! same files. The tests are: a repeated sample, a small set of bytes, a small core set of frequent bytes, and the
//! entropy.

use std::cmp::Reverse;

#[cfg(test)]
mod tests;

/// Distance between the starts of two samples.
const INTERVAL_BYTES: usize = 256;
/// Length of a sample.
const SAMPLE_BYTES: usize = 16;

/// Data with fewer distinct bytes is compressible.
const SMALL_SET: usize = 64;
/// The core set consists of the most frequent bytes that make up this percentage of the sample.
const CORE_PERCENT: usize = 90;
const SMALL_CORE: usize = 64;
const LARGE_CORE: usize = 200;
/// Data with at least this entropy is not compressed, in percent of eight bits per byte.
const HIGH_ENTROPY_PERCENT: f64 = 80.0;

/// Returns whether a sample of `data` is regular enough to try compression.
pub fn looks_compressible(data: &[u8]) -> bool {
    let mut sample = Vec::with_capacity(data.len() / INTERVAL_BYTES * SAMPLE_BYTES);
    for interval in data.chunks(INTERVAL_BYTES) {
        sample.extend_from_slice(interval.get(..SAMPLE_BYTES).unwrap_or_default());
    }
    let (first, second) = sample.split_at(sample.len() / 2);
    if first == second {
        return true;
    }
    let mut counts = [0_u32; 256];
    for &byte in &sample {
        counts[usize::from(byte)] += 1;
    }
    if counts.iter().filter(|&&count| count > 0).count() < SMALL_SET {
        return true;
    }
    counts.sort_unstable_by_key(|&count| Reverse(count));
    match core_set(&counts, sample.len()) {
        core if core <= SMALL_CORE => true,
        core if core >= LARGE_CORE => false,
        _ => entropy_percent(&counts, sample.len()) < HIGH_ENTROPY_PERCENT,
    }
}

/// Returns the size of the core set: the number of most frequent bytes that make up most of the sample.
fn core_set(counts: &[u32; 256], total: usize) -> usize {
    let most = total * CORE_PERCENT / 100;
    let mut covered = 0;
    for (number, &count) in counts.iter().enumerate() {
        covered += count as usize;
        if covered > most {
            return number + 1;
        }
    }
    counts.len()
}

fn entropy_percent(counts: &[u32; 256], total: usize) -> f64 {
    let total = total as f64;
    let used = counts.iter().filter(|&&count| count > 0);
    let bits: f64 = used
        .map(|&count| {
            let share = f64::from(count) / total;
            -share * share.log2()
        })
        .sum();
    bits * 100.0 / 8.0
}

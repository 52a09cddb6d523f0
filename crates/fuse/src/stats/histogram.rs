//! Histograms of durations, in buckets whose width grows with the duration.
//!
//! Each doubling has four buckets: a duration read back is off by an eighth of itself at most.

use std::sync::atomic::{AtomicU64, Ordering};

/// All durations below 2^FIRST_SHIFT ns share a bucket.
const FIRST_SHIFT: u32 = 7;
/// All durations from 2^LAST_SHIFT ns, a little more than a minute, share a bucket.
const LAST_SHIFT: u32 = 36;
const PER_DOUBLING: usize = 4;
pub(super) const BUCKETS: usize = (LAST_SHIFT - FIRST_SHIFT) as usize * PER_DOUBLING + 2;

/// Returns the bucket that counts `ns`.
fn bucket_of(ns: u64) -> usize {
    let shift = (u64::BITS - 1).saturating_sub(ns.leading_zeros());
    if ns == 0 || shift < FIRST_SHIFT {
        return 0;
    }
    if shift >= LAST_SHIFT {
        return BUCKETS - 1;
    }
    let quarter = (ns >> (shift - 2) & 3) as usize;
    1 + (shift - FIRST_SHIFT) as usize * PER_DOUBLING + quarter
}

/// Returns the exclusive upper bound of a bucket, or `None` for the last one.
pub(super) fn upper_ns(bucket: usize) -> Option<u64> {
    if bucket == 0 {
        return Some(1 << FIRST_SHIFT);
    }
    let index = bucket - 1;
    let shift = FIRST_SHIFT + (index / PER_DOUBLING) as u32;
    let quarter = (index % PER_DOUBLING) as u64;
    (shift < LAST_SHIFT).then(|| (5 + quarter) << (shift - 2))
}

/// A histogram that concurrent threads update.
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(super) const fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn add(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    buckets: Vec<u64>,
    pub sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Durations {
            buckets: vec![0; BUCKETS],
            sum_ns: 0,
        }
    }
}

impl Durations {
    pub(super) fn take_in(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.sum_ns += histogram.sum_ns.load(Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// Returns a duration that at least `part` (of 1) of all samples did not exceed, or 0 without samples.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let count = self.count();
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, counted) in self.buckets.iter().enumerate() {
            seen += counted;
            if seen >= rank {
                return upper_ns(bucket).unwrap_or(1 << LAST_SHIFT);
            }
        }
        0
    }

    /// Returns the upper end of the highest bucket in use.
    pub fn max_ns(&self) -> u64 {
        self.quantile_ns(1.0)
    }

    /// Returns the number of shorter samples for each power of two from about a microsecond to about a minute.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut below = 0;
        let counted = self.buckets.iter().enumerate();
        let sums = counted.filter_map(move |(bucket, count)| {
            below += count;
            Some((upper_ns(bucket)?, below))
        });
        sums.filter(|(ns, _)| ns.is_power_of_two() && *ns >= 1 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_ends_where_the_next_begins() {
        for bucket in 0..BUCKETS {
            let Some(upper) = upper_ns(bucket) else {
                assert_eq!(bucket, BUCKETS - 1);
                continue;
            };
            assert_eq!(bucket_of(upper - 1), bucket, "{upper}");
            assert_eq!(bucket_of(upper), bucket + 1, "{upper}");
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_off_by_a_quarter_at_most() {
        let histogram = Histogram::new();
        for us in 1..=1000 {
            histogram.add(us * 1000);
        }
        let mut all = Durations::default();
        all.take_in(&histogram);
        assert_eq!(all.count(), 1000);
        assert_eq!(all.mean_ns(), 500_500);
        for (part, wanted) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let found = all.quantile_ns(part);
            assert!(
                (wanted..=wanted * 5 / 4 + 1).contains(&found),
                "{part}: {found}"
            );
        }
        let (_, last) = all.cumulative().last().unwrap();
        assert_eq!(last, 1000);
        assert_eq!(Durations::default().quantile_ns(0.5), 0);
    }
}

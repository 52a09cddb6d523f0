//! A latency histogram of constant size.

use std::time::Duration;

/// Buckets for each doubling: values within a bucket differ by 3 % at most.
const PER_DOUBLING: u32 = 32;
const BUCKETS: usize = (40 * PER_DOUBLING) as usize;

/// Counts of latencies, by size.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
    total: u64,
    longest: Duration,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            counts: vec![0; BUCKETS],
            total: 0,
            longest: Duration::ZERO,
        }
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, took: Duration) {
        let ns = took.as_nanos().max(1) as f64;
        let bucket = (ns.log2() * f64::from(PER_DOUBLING)) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.longest = self.longest.max(took);
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the quantile `part`: this share of all latencies is at or below the result.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                let ns = ((bucket + 1) as f64 / f64::from(PER_DOUBLING)).exp2();
                return Duration::from_nanos(ns as u64).min(self.longest);
            }
        }
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut latencies = Latencies::default();
        for us in 1..=10_000 {
            latencies.add(Duration::from_micros(us));
        }
        for (part, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.9999, 9_999.0)] {
            let found = latencies.quantile(part).as_secs_f64() * 1e6;
            assert!((found / us - 1.0).abs() < 0.04, "{part}: {found}");
        }
        assert_eq!(latencies.quantile(1.0), Duration::from_micros(10_000));
    }

    #[test]
    fn merged_latencies_count_as_of_one_thread() {
        let [mut one, mut low, mut high] = [(); 3].map(|()| Latencies::default());
        for us in 1..=1000 {
            one.add(Duration::from_micros(us));
            let half = if us <= 500 { &mut low } else { &mut high };
            half.add(Duration::from_micros(us));
        }
        low.merge(&high);
        assert_eq!((low.count(), low.longest()), (1000, one.longest()));
        assert_eq!(low.quantile(0.5), one.quantile(0.5));
        assert_eq!(low.quantile(0.99), one.quantile(0.99));
    }
}

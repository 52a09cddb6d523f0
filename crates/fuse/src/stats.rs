//! Live figures of a mount: counts and durations of each verb, bytes, and the volume's own counters.
//!
//! Every request is counted, so counting takes no lock and avoids false sharing. Each thread uses one of a few sets of
//! counters, and a report sums them up.
//!
//! Not here: the output (`report`).

mod counted;
mod discard;
mod figures;
mod histogram;
mod render;
mod report;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use ubtrfs_device::clock;
use ubtrfs_fs::Volume;
use ubtrfs_fuse_server::request::{Answer, Errno, Result};

pub(crate) use self::counted::Counted;
pub use self::discard::DiscardReport;
pub use self::histogram::Durations;
use self::histogram::Histogram;
pub use self::report::{Operation, Report};
pub use ubtrfs_fuse_server::request::Verb;

/// The number of counter sets; further threads share them.
const SETS: usize = 16;

/// The counters of a verb.
struct VerbCounters {
    durations: Histogram,
    errors: AtomicU64,
}

/// The counters of some threads.
#[repr(align(128))]
struct Set {
    verbs: [VerbCounters; Verb::ALL.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// Requests that were handed over by a thread that must not wait, to be repeated.
    handed_over: AtomicU64,
}

impl Set {
    const fn new() -> Set {
        Set {
            verbs: [const {
                VerbCounters {
                    durations: Histogram::new(),
                    errors: AtomicU64::new(0),
                }
            }; Verb::ALL.len()],
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
        }
    }
}

/// Figures of one mount.
pub struct Stats {
    sets: Box<[Set]>,
    clock: quanta::Clock,
    since: Instant,
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

thread_local! {
    static SET: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the number of this thread's set.
fn set_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let known = SET.get();
    if known != usize::MAX {
        return known;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % SETS;
    SET.set(number);
    number
}

impl Stats {
    pub fn new() -> Stats {
        Stats {
            sets: (0..SETS).map(|_| Set::new()).collect(),
            clock: quanta::Clock::new(),
            since: clock::now(),
        }
    }

    /// Counts a request, which `perform` performs.
    #[inline]
    fn count(&self, verb: Verb, perform: impl FnOnce() -> Result<Answer>) -> Result<Answer> {
        let begin = self.clock.raw();
        let outcome = perform();
        let ns = self.clock.delta_as_nanos(begin, self.clock.raw());
        let set = &self.sets[set_number()];
        let counters = &set.verbs[verb as usize];
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        match &outcome {
            Err(Errno::WOULD_BLOCK) => {
                add(&set.handed_over, 1);
                return outcome;
            }
            Err(_) => add(&counters.errors, 1),
            Ok(Answer::Len(len)) if verb == Verb::Read => add(&set.bytes_read, *len as u64),
            Ok(Answer::Written(len)) => add(&set.bytes_written, *len as u64),
            Ok(_) => 0,
        };
        counters.durations.add(ns);
        outcome
    }

    /// Returns all current figures, including the mounted volume's.
    pub fn report(&self, volume: &Volume) -> Report {
        let sum = |counter: fn(&Set) -> &AtomicU64| {
            let sets = self.sets.iter();
            sets.map(|set| counter(set).load(Ordering::Relaxed)).sum()
        };
        let operations = Verb::ALL.iter().map(|&verb| {
            let mut durations = Durations::default();
            let mut errors = 0;
            for set in &self.sets {
                let counters = &set.verbs[verb as usize];
                durations.take_in(&counters.durations);
                errors += counters.errors.load(Ordering::Relaxed);
            }
            Operation {
                verb,
                errors,
                durations,
            }
        });
        Report {
            uptime: clock::now() - self.since,
            operations: operations.collect(),
            bytes_read: sum(|set| &set.bytes_read),
            bytes_written: sum(|set| &set.bytes_written),
            handed_over: sum(|set| &set.handed_over),
            aborted: volume.abort_reason(),
            writer: volume.writer_stats(),
            discard: volume.is_writable().then(|| DiscardReport::of(volume)),
            nodes: volume.node_store().stats(),
            extents: volume.decompressed_stats(),
            read_errors: volume.pool().read_error_count(),
            unrecovered: volume.pool().unrecovered_count(),
            repaired_mirrors: volume.pool().repaired_mirrors(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_in_the_order_of_their_numbers_and_have_names_of_their_own() {
        for (number, verb) in Verb::ALL.iter().enumerate() {
            assert_eq!(*verb as usize, number);
        }
        let mut names: Vec<_> = Verb::ALL.iter().map(|verb| verb.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Verb::ALL.len());
    }

    #[test]
    fn requests_of_all_threads_are_counted_and_repeated_ones_once() {
        let stats = Stats::new();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for outcome in [
                        (Verb::Create, Ok(Answer::Done)),
                        (Verb::Create, Err(Errno::NOSPC)),
                        (Verb::Create, Err(Errno::WOULD_BLOCK)),
                        (Verb::Write, Ok(Answer::Written(5))),
                        (Verb::Read, Ok(Answer::Len(4))),
                        (Verb::Getxattr, Ok(Answer::Len(3))),
                    ] {
                        assert_eq!(stats.count(outcome.0, || outcome.1), outcome.1);
                    }
                });
            }
        });
        let mut durations = Durations::default();
        let mut errors = 0;
        let mut handed_over = 0;
        let mut written = 0;
        let mut read = 0;
        for set in &stats.sets {
            durations.take_in(&set.verbs[Verb::Create as usize].durations);
            errors += set.verbs[Verb::Create as usize]
                .errors
                .load(Ordering::Relaxed);
            handed_over += set.handed_over.load(Ordering::Relaxed);
            written += set.bytes_written.load(Ordering::Relaxed);
            read += set.bytes_read.load(Ordering::Relaxed);
        }
        assert_eq!((durations.count(), errors), (80, 40));
        assert_eq!((handed_over, written, read), (40, 200, 160));
    }
}

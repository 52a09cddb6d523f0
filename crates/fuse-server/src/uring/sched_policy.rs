//! Decides when the queue threads yield to all other threads.
//!
//! The thread of a queue wakes its client while it runs itself. The scheduler finds the client's CPU busy and moves the
//! client to an idle one. There another queue serves it, and the same happens again. So each request pays for a
//! migration and for waking an idle CPU. A CPU that runs only `SCHED_IDLE` threads counts as idle, so with that policy
//! the client stays. But such a thread gets next to nothing of a CPU that another thread wants. So queue threads yield
//! only while the request rate is high, another CPU is idle, and they get to run soon.
//!
//! Not here: the source of the figures, and the thread that acts (`sched_switcher`).

use std::time::Duration;

/// The interval of checks. The wait of a thread that yields to others ends after about as long.
pub(super) const PERIOD: Duration = Duration::from_millis(5);
/// The delay until the next check, when a thread may be starved.
const SUSPICION: Duration = Duration::from_millis(1);
/// The rate of requests per second from which on yielding pays.
const RATE_MIN: u64 = 1000;
/// The maximum time that a thread waits for its CPU, for each request served, if it waits for half of the time. A
/// client that computes between two requests also makes it wait, but a client that computes for so long has little to
/// gain.
const WAIT_MAX: Duration = Duration::from_micros(250);
/// The number of checks without a request after which a queue counts as unused.
const QUIET_LOOKS: u32 = 20;
/// The delay before yielding is tried again after it did harm, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After this time of yielding without harm, earlier harm is forgotten.
const PROBATION: Duration = Duration::from_secs(2);

/// The observations of a queue since the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) served: u64,
    /// Finished waits of its thread for the CPU.
    pub(super) waited: Duration,
    /// Its thread is running or runnable.
    pub(super) is_runnable: bool,
}

/// The observations of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) since_last: Duration,
    pub(super) cpus: usize,
    /// Runnable threads, without queue threads and the checking thread.
    pub(super) runnable: usize,
}

/// The decision until the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Whether threads of used queues yield.
    pub(super) yielding: bool,
    /// The delay until the next check; `None` means until requests arrive.
    pub(super) next: Option<Duration>,
}

/// The history of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    quiet_looks: u32,
    /// The number of consecutive checks at which it was runnable and had served nothing.
    stuck_looks: u32,
}

impl Record {
    pub(super) fn unused() -> Self {
        Self {
            quiet_looks: QUIET_LOOKS,
            stuck_looks: 0,
        }
    }

    /// Returns whether the queue is in use.
    pub(super) fn is_in_use(&self) -> bool {
        self.quiet_looks < QUIET_LOOKS
    }
}

#[derive(Debug, Default)]
pub(super) struct SchedPolicy {
    yielding: bool,
    /// The next pause after harm.
    pause: Duration,
    /// How long threads have yielded without harm.
    well: Duration,
}

impl SchedPolicy {
    pub(super) fn decide(&mut self, machine: Machine, queues: &mut [(Record, Seen)]) -> Decision {
        let mut served = 0;
        let mut harmed = false;
        let mut stuck_looks = 0;
        for (record, seen) in &mut *queues {
            served += seen.served;
            let requests = u32::try_from(seen.served).unwrap_or(u32::MAX);
            harmed |= seen.waited > machine.since_last / 2
                && seen.waited > WAIT_MAX.saturating_mul(requests);
            let quiet = seen.served == 0;
            record.quiet_looks = if quiet {
                QUIET_LOOKS.min(record.quiet_looks + 1)
            } else {
                0
            };
            let stuck = quiet && seen.is_runnable;
            record.stuck_looks = if stuck { record.stuck_looks + 1 } else { 0 };
            stuck_looks = stuck_looks.max(record.stuck_looks);
        }
        // A thread that is runnable without progress at one check may just have been woken, so it takes two.
        if harmed || stuck_looks >= 2 {
            return self.harmed();
        }
        let rate = u128::from(served) * 1_000_000 / machine.since_last.as_micros().max(1);
        let fast = rate >= u128::from(RATE_MIN);
        let in_use = queues.iter().any(|(record, _)| record.is_in_use());
        let crowded = machine.runnable >= machine.cpus;
        // Hysteresis: a high rate starts yielding, and it continues until all queues are quiet.
        self.yielding = !crowded && (fast || self.yielding && in_use);
        if self.yielding {
            self.well += machine.since_last;
            if self.well >= PROBATION {
                self.pause = Duration::ZERO;
            }
        }
        let next = match stuck_looks {
            _ if !self.yielding && !fast => None,
            0 => Some(PERIOD),
            _ => Some(SUSPICION),
        };
        Decision {
            yielding: self.yielding,
            next,
        }
    }

    fn harmed(&mut self) -> Decision {
        let pause = self.pause.clamp(PAUSE_MIN, PAUSE_MAX);
        self.pause = pause * 2;
        self.well = Duration::ZERO;
        self.yielding = false;
        Decision {
            yielding: false,
            next: Some(pause),
        }
    }
}

#[cfg(test)]
mod tests;

//! When the threads of queues yield to all other threads.
//!
//! The thread of a queue wakes its client while it runs itself. The scheduler finds the client's CPU busy and moves
//! the client to an idle one. There another queue serves it, which does the same. Each request then pays for a
//! migration and for waking an idle CPU. A CPU where nothing but `SCHED_IDLE` runs counts as idle, so with that policy
//! the client stays. But such a thread gets next to nothing of a CPU that another thread wants. So threads of queues
//! yield only while requests come fast, another CPU is idle, and they get to run soon.
//!
//! Not here: where figures come from, and the thread that acts (`sched_switcher`).

use std::time::Duration;

/// Between two looks. The wait of a thread that yields to others ends after about as long.
pub(super) const PERIOD: Duration = Duration::from_millis(5);
/// Before the next look, when a thread may be kept waiting.
const SUSPICION: Duration = Duration::from_millis(1);
/// Requests in a second from which on yielding pays.
const RATE_MIN: u64 = 1000;
/// How long a thread may wait for its CPU, for each request that it serves, when it waits for half of the time. A
/// client that works between two requests keeps it waiting too; one that works for so long has little to gain.
const WAIT_MAX: Duration = Duration::from_micros(250);
/// Looks without a request after which a queue is left alone.
const QUIET_LOOKS: u32 = 20;
/// How long yielding is not tried again after it did harm, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Yielding without harm for so long makes the harm before it forgotten.
const PROBATION: Duration = Duration::from_secs(2);

/// The observations of a queue since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) served: u64,
    /// Its thread's waits for the CPU that have ended.
    pub(super) waited: Duration,
    /// Its thread runs or wants to.
    pub(super) is_runnable: bool,
}

/// The observations of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) since_last: Duration,
    pub(super) cpus: usize,
    /// Threads that run or want to, but for those of queues and the one that looks.
    pub(super) runnable: usize,
}

/// The decision until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Whether threads of queues that are in use yield.
    pub(super) yielding: bool,
    /// When to look again; None: when requests come.
    pub(super) next: Option<Duration>,
}

/// The history of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    quiet_looks: u32,
    /// Looks in a row at which it wanted to run and had served nothing.
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
    /// The pause after harm that comes next.
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
        if harmed || stuck_looks >= 2 {
            return self.harmed();
        }
        let rate = u128::from(served) * 1_000_000 / machine.since_last.as_micros().max(1);
        let fast = rate >= u128::from(RATE_MIN);
        let in_use = queues.iter().any(|(record, _)| record.is_in_use());
        let crowded = machine.runnable >= machine.cpus;
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

//! The thread that makes the queue threads yield while that pays (`sched_policy`).
//!
//! It checks every few milliseconds while requests arrive, and otherwise sleeps (`switcher_sleep`).
//!
//! Invariants
//! - SWITCHER-1: while the switcher sleeps, and after its end, no thread yields.
//! - SWITCHER-2: only live threads are given a policy: a thread signs off before it ends.
//!
//! Locks: a queue's `thread`, a leaf, held while its thread is inspected or given a policy.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};

use super::load::{self, Gauged, Runnable, ThreadGauge, online_cpus};
use super::sched::{self, Policy};
use super::sched_policy::{Machine, PERIOD, Record, SchedPolicy, Seen};
use super::switcher_sleep::{ServedRequests, SwitcherSleep};
use crate::clock;

/// The loads that queues report to the switcher.
#[derive(Debug)]
pub(super) struct QueueLoads {
    queues: Box<[QueueLoad]>,
    switcher: SwitcherSleep,
}

/// The load of one queue, updated by every request.
#[derive(Debug, Default)]
#[repr(align(128))]
struct QueueLoad {
    served: ServedRequests,
    thread: Mutex<Option<Pid>>,
}

impl QueueLoads {
    pub(super) fn new(queues: usize) -> Arc<Self> {
        Arc::new(Self {
            queues: (0..queues).map(|_| QueueLoad::default()).collect(),
            switcher: SwitcherSleep::default(),
        })
    }

    /// Registers the calling thread as the one that serves a queue.
    pub(super) fn sign_on(&self, queue: usize) -> SignedOn<'_> {
        let load = &self.queues[queue];
        *load.thread.lock() = Some(gettid());
        SignedOn { loads: self, load }
    }
}

/// The registration of the thread that serves a queue; ends on drop.
pub(super) struct SignedOn<'a> {
    loads: &'a QueueLoads,
    load: &'a QueueLoad,
}

impl SignedOn<'_> {
    /// Counts requests that have arrived.
    #[inline]
    pub(super) fn count(&self, requests: u64) {
        self.load.served.add(requests, &self.loads.switcher);
    }
}

impl Drop for SignedOn<'_> {
    fn drop(&mut self) {
        // SWITCHER-2
        *self.load.thread.lock() = None;
    }
}

/// The switcher thread, which ends when this is dropped.
pub(super) struct SchedSwitcher {
    loads: Arc<QueueLoads>,
    thread: Option<JoinHandle<()>>,
}

impl SchedSwitcher {
    /// Starts the thread that switches policies. Returns `None`, and logs the reason, if policies cannot be switched.
    pub(super) fn start(loads: &Arc<QueueLoads>) -> Option<Self> {
        let started = start(loads);
        if let Err(error) = &started {
            tracing::debug!(%error, "threads of queues do not yield");
        }
        started.ok()
    }
}

fn start(loads: &Arc<QueueLoads>) -> io::Result<SchedSwitcher> {
    if !sched::is_normal() {
        return Err(io::Error::other("this process was given a policy"));
    }
    if online_cpus()? < 2 {
        return Err(io::Error::other("there is one CPU"));
    }
    sched::try_there_and_back()?;
    let mut watching = Watching::new(Arc::clone(loads))?;
    let thread = crate::thread::start("ubtrfs-sched", move || {
        if let Err(error) = watching.run() {
            tracing::debug!(%error, "threads of queues do not yield any more");
        }
        // SWITCHER-1
        let _ = watching.apply(false);
    })?;
    loads.switcher.set_thread(thread.thread().clone());
    Ok(SchedSwitcher {
        loads: Arc::clone(loads),
        thread: Some(thread),
    })
}

impl Drop for SchedSwitcher {
    fn drop(&mut self) {
        self.loads.switcher.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A queue that the switcher observes.
struct Watched {
    record: Record,
    /// The gauge of its thread, created on first use of the queue.
    gauge: Option<ThreadGauge>,
    served: u64,
    waited: Duration,
    policy: Policy,
}

struct Watching {
    loads: Arc<QueueLoads>,
    queues: Vec<Watched>,
    runnable: Runnable,
    cpus: usize,
}

impl Watching {
    fn new(loads: Arc<QueueLoads>) -> io::Result<Self> {
        let unused = |_: &QueueLoad| Watched {
            record: Record::unused(),
            gauge: None,
            served: 0,
            waited: Duration::ZERO,
            policy: Policy::Normal,
        };
        let watching = Self {
            queues: loads.queues.iter().map(unused).collect(),
            loads,
            runnable: Runnable::open()?,
            cpus: online_cpus()?,
        };
        watching.runnable.count()?;
        load::check_waits_are_counted()?;
        Ok(watching)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut policy = SchedPolicy::default();
        let mut next = None;
        let mut last = clock::now();
        loop {
            if next.is_none() {
                self.loads.switcher.sleep();
                self.look()?;
                last = clock::now();
            }
            if self.loads.switcher.pause(next.unwrap_or(PERIOD)) {
                return Ok(());
            }
            let (mut seen, running) = self.look()?;
            let machine = Machine {
                since_last: clock::now() - last,
                cpus: self.cpus,
                // Excludes the switcher itself.
                runnable: self.runnable.count()?.saturating_sub(running + 1),
            };
            last = clock::now();
            let decision = policy.decide(machine, &mut seen);
            for (queue, (record, _)) in self.queues.iter_mut().zip(seen) {
                queue.record = record;
            }
            self.apply(decision.yielding)?;
            next = decision.next;
        }
    }

    /// Returns the observations of each queue since the last check, and the number of their runnable threads.
    fn look(&mut self) -> io::Result<(Vec<(Record, Seen)>, usize)> {
        let mut running = 0;
        let mut all = Vec::with_capacity(self.queues.len());
        for (queue, load) in self.queues.iter_mut().zip(&self.loads.queues) {
            let served = load.served.get();
            let mut seen = Seen {
                served: served - queue.served,
                ..Seen::default()
            };
            queue.served = served;
            let was_in_use = queue.record.is_in_use();
            if was_in_use || seen.served > 0 {
                let Gauged {
                    is_runnable,
                    waited,
                } = queue.gauge(load)?;
                // The wait of a queue that was unused includes time that no check has covered, so it does not count.
                if was_in_use {
                    seen.waited = waited.saturating_sub(queue.waited);
                }
                queue.waited = waited;
                seen.is_runnable = is_runnable;
                running += usize::from(is_runnable);
            }
            all.push((queue.record, seen));
        }
        Ok((all, running))
    }

    /// Sets the policies of the queue threads.
    fn apply(&mut self, yielding: bool) -> io::Result<()> {
        let mut outcome = Ok(());
        for (queue, load) in self.queues.iter_mut().zip(&self.loads.queues) {
            let wanted = if yielding && queue.record.is_in_use() {
                Policy::Idle
            } else {
                Policy::Normal
            };
            if wanted == queue.policy {
                continue;
            }
            if let Some(thread) = *load.thread.lock() {
                outcome = outcome.and(sched::set(thread, wanted));
            }
            queue.policy = wanted;
        }
        outcome
    }
}

impl Watched {
    fn gauge(&mut self, load: &QueueLoad) -> io::Result<Gauged> {
        let thread = load.thread.lock();
        // A thread that has signed off is not runnable.
        let Some(id) = *thread else {
            return Ok(Gauged::default());
        };
        match &self.gauge {
            Some(gauge) => gauge.look(),
            None => self.gauge.insert(ThreadGauge::open(id)?).look(),
        }
    }
}

#[cfg(test)]
mod tests;

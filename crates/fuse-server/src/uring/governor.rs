//! The thread that has the threads of queues yield while that pays (`judge`).
//!
//! It looks every few milliseconds while requests come, and sleeps while none do.
//!
//! Invariants
//! - GOVERN-1: while the governor sleeps, and after its end, no thread yields.
//! - GOVERN-2: only threads that live are given a policy: a thread signs off before it ends.
//!
//! Locks: a pulse's `thread`, a leaf, held while its thread is looked at or given a policy.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};

use super::judge::{Judge, Machine, PERIOD, Record, Seen};
use super::load::{self, Gauged, Runnable, ThreadGauge, online_cpus};
use super::sched::{self, Policy};

/// A queue looks whether the governor sleeps once in so many requests.
const REQUESTS_A_LOOK: u64 = 64;

/// What queues tell the governor.
#[derive(Debug)]
pub(super) struct Pulses {
    queues: Box<[Pulse]>,
    governor: OnceLock<Thread>,
    asleep: AtomicBool,
    ended: AtomicBool,
}

/// What one queue tells; it is written to with every request.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pulse {
    served: AtomicU64,
    thread: Mutex<Option<Pid>>,
}

impl Pulses {
    pub(super) fn new(queues: usize) -> Arc<Self> {
        Arc::new(Self {
            queues: (0..queues).map(|_| Pulse::default()).collect(),
            governor: OnceLock::new(),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// The calling thread serves a queue.
    pub(super) fn sign_on(&self, queue: usize) -> SignedOn<'_> {
        let pulse = &self.queues[queue];
        *pulse.thread.lock() = Some(gettid());
        SignedOn {
            pulses: self,
            pulse,
        }
    }

    fn wake(&self) {
        self.asleep.store(false, Ordering::Release);
        if let Some(governor) = self.governor.get() {
            governor.unpark();
        }
    }
}

/// A thread that serves a queue, for as long as it does.
pub(super) struct SignedOn<'a> {
    pulses: &'a Pulses,
    pulse: &'a Pulse,
}

impl SignedOn<'_> {
    /// So many requests have come.
    #[inline]
    pub(super) fn count(&self, requests: u64) {
        // Nobody else writes.
        let before = self.pulse.served.load(Ordering::Relaxed);
        let now = before + requests;
        self.pulse.served.store(now, Ordering::Relaxed);
        if before / REQUESTS_A_LOOK != now / REQUESTS_A_LOOK
            && self.pulses.asleep.load(Ordering::Relaxed)
        {
            self.pulses.wake();
        }
    }
}

impl Drop for SignedOn<'_> {
    fn drop(&mut self) {
        // GOVERN-2
        *self.pulse.thread.lock() = None;
    }
}

/// The thread, which ends when this is dropped.
pub(super) struct Governor {
    pulses: Arc<Pulses>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    /// None, for a reason that is logged, where threads could not be governed.
    pub(super) fn start(pulses: &Arc<Pulses>) -> Option<Self> {
        let started = start(pulses);
        if let Err(error) = &started {
            tracing::debug!(%error, "threads of queues do not yield");
        }
        started.ok()
    }
}

fn start(pulses: &Arc<Pulses>) -> io::Result<Governor> {
    if !sched::is_normal() {
        return Err(io::Error::other("this process was given a policy"));
    }
    if online_cpus()? < 2 {
        return Err(io::Error::other("there is one CPU"));
    }
    sched::try_there_and_back()?;
    let mut watching = Watching::new(Arc::clone(pulses))?;
    let thread = Builder::new().name("ubtrfs-govern".into()).spawn(move || {
        if let Err(error) = watching.govern() {
            tracing::debug!(%error, "threads of queues do not yield any more");
        }
        let _ = watching.apply(false);
    })?;
    Ok(Governor {
        pulses: Arc::clone(pulses),
        thread: Some(thread),
    })
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.pulses.ended.store(true, Ordering::Release);
        self.pulses.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the governor knows of a queue.
struct Watched {
    record: Record,
    /// Its thread's; made when the queue is used for the first time.
    gauge: Option<ThreadGauge>,
    served: u64,
    waited: Duration,
    policy: Policy,
}

struct Watching {
    pulses: Arc<Pulses>,
    queues: Vec<Watched>,
    runnable: Runnable,
    cpus: usize,
}

impl Watching {
    fn new(pulses: Arc<Pulses>) -> io::Result<Self> {
        let unused = |_: &Pulse| Watched {
            record: Record::unused(),
            gauge: None,
            served: 0,
            waited: Duration::ZERO,
            policy: Policy::Normal,
        };
        let watching = Self {
            queues: pulses.queues.iter().map(unused).collect(),
            pulses,
            runnable: Runnable::open()?,
            cpus: online_cpus()?,
        };
        watching.runnable.count()?;
        load::check_waits_are_counted()?;
        Ok(watching)
    }

    fn govern(&mut self) -> io::Result<()> {
        let _ = self.pulses.governor.set(thread::current());
        let mut judge = Judge::default();
        let mut next = None;
        let mut last = Instant::now();
        loop {
            if next.is_none() {
                self.sleep();
                self.look()?;
                last = Instant::now();
            }
            thread::park_timeout(next.unwrap_or(PERIOD));
            if self.pulses.ended.load(Ordering::Acquire) {
                return Ok(());
            }
            let (mut seen, running) = self.look()?;
            let machine = Machine {
                since_last: last.elapsed(),
                cpus: self.cpus,
                // The governor itself runs.
                runnable: self.runnable.count()?.saturating_sub(running + 1),
            };
            last = Instant::now();
            let verdict = judge.judge(machine, &mut seen);
            for (queue, (record, _)) in self.queues.iter_mut().zip(seen) {
                queue.record = record;
            }
            self.apply(verdict.yielding)?;
            next = verdict.next;
        }
    }

    /// Until requests come.
    fn sleep(&self) {
        self.pulses.asleep.store(true, Ordering::Release);
        while self.pulses.asleep.load(Ordering::Acquire)
            && !self.pulses.ended.load(Ordering::Acquire)
        {
            thread::park();
        }
    }

    /// What was seen of each queue since the look before, and how many of their threads run or want to.
    fn look(&mut self) -> io::Result<(Vec<(Record, Seen)>, usize)> {
        let mut running = 0;
        let mut all = Vec::with_capacity(self.queues.len());
        for (queue, pulse) in self.queues.iter_mut().zip(&self.pulses.queues) {
            let served = pulse.served.load(Ordering::Relaxed);
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
                } = queue.gauge(pulse)?;
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

    /// Gives the threads of queues their policies.
    fn apply(&mut self, yielding: bool) -> io::Result<()> {
        let mut outcome = Ok(());
        for (queue, pulse) in self.queues.iter_mut().zip(&self.pulses.queues) {
            let wanted = if yielding && queue.record.is_in_use() {
                Policy::Idle
            } else {
                Policy::Normal
            };
            if wanted == queue.policy {
                continue;
            }
            if let Some(thread) = *pulse.thread.lock() {
                outcome = outcome.and(sched::set(thread, wanted));
            }
            queue.policy = wanted;
        }
        outcome
    }
}

impl Watched {
    fn gauge(&mut self, pulse: &Pulse) -> io::Result<Gauged> {
        let thread = pulse.thread.lock();
        // One that has signed off wants nothing.
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

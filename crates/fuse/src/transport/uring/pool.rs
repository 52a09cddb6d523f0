//! Threads for requests that have to wait.
//!
//! Threads are started when none is idle, up to a limit, and stay. Beyond the limit requests wait for a
//! thread; none of them depends on another request. A queue's thread is pinned, and so would be the threads
//! that it starts: they take back the CPUs that the process may use.
//!
//! Locks: the pool's, a leaf, not held while a job runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_setaffinity};

type Job = Box<dyn FnOnce() + Send>;

/// Where requests go that a queue cannot answer.
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
    cpus: CpuSet,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

impl Pool {
    /// Of up to `limit` threads, on these CPUs.
    pub(super) fn new(limit: usize, cpus: CpuSet) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
            cpus,
        })
    }

    /// Has a job run on a thread of the pool. Not after `end`.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle && state.threads.len() < self.limit {
            let pool = Arc::clone(self);
            let started = Builder::new()
                .name("ubtrfs-pool".into())
                .spawn(move || pool.work());
            match started {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    // Late is better than never.
                    tracing::error!(%error, "no thread that may wait");
                    let job = state.jobs.pop_back();
                    drop(state);
                    if let Some(job) = job {
                        job();
                    }
                    return;
                }
                Err(error) => tracing::warn!(%error, "fewer threads than wanted"),
            }
        }
        self.changed.notify_one();
    }

    fn work(&self) {
        if let Err(error) = sched_setaffinity(None, &self.cpus) {
            tracing::debug!(%error, "a thread that may wait stays on one CPU");
        }
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// Runs what waits, and ends the threads.
    pub(super) fn end(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.ended = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        for thread in threads {
            // Jobs do not panic: verbs are guarded.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;

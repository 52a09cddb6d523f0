//! A pool of threads for blocking work: requests that a queue cannot answer, and drops of cached pages.
//!
//! Threads are started up to a limit, and stay. Beyond the limit, jobs are queued. No request depends on a queued job,
//! and a queued drop runs once others have ended.
//!
//! Invariants
//! - JOBS-1: while fewer than `limit` jobs run, a thread is idle or starting.
//! - JOBS-2: threads are started by the creator of the pool and by its own threads, never by a queue's thread. They
//!   would inherit its CPU affinity, and it has no time to spare.
//!
//! Locks: the pool's, a leaf, not held while a job runs.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::thread;
use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// A set of threads and its queue of jobs.
pub(crate) struct Pool {
    /// The name of the threads.
    name: &'static str,
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that have no job, or are starting.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

impl Pool {
    /// Creates a pool of up to `limit` threads, on the CPUs of the caller.
    pub(crate) fn new(name: &'static str, limit: usize) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            name,
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
        });
        pool.start(&mut pool.state.lock())?;
        Ok(pool)
    }

    /// Runs a job on a thread of the pool, or on the caller's thread after `end`.
    // Does not start threads, as the caller may be a queue's thread (JOBS-2).
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            return job();
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.changed.notify_one();
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = Arc::clone(self);
        let thread = thread::start(self.name, move || pool.work())?;
        state.threads.push(thread);
        state.idle += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.idle -= 1;
                // JOBS-1, JOBS-2: the last idle thread starts the next one before it runs its job.
                if state.idle == 0
                    && state.threads.len() < self.limit
                    && !state.ended
                    && let Err(error) = self.start(&mut state)
                {
                    tracing::warn!(%error, "fewer threads than requested");
                }
                drop(state);
                job();
                state = self.state.lock();
                state.idle += 1;
            } else if state.ended {
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Runs the queued jobs, and ends the threads.
    pub(crate) fn end(&self) {
        // The lock is released before the joins, since the threads need it to finish.
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

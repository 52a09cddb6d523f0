//! Says how far a long test is, to standard error and in a soak only.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(10);

/// May be told by several threads.
#[derive(Debug)]
pub struct Progress {
    name: String,
    total: usize,
    begun: Instant,
    /// None where progress is not shown.
    told: Option<Mutex<Told>>,
}

#[derive(Debug)]
struct Told {
    done: usize,
    next: Instant,
}

impl Progress {
    pub fn new(name: impl Into<String>, total: usize) -> Progress {
        let begun = Instant::now();
        let told = std::env::var_os("UBTRFS_SOAK").map(|_| {
            Mutex::new(Told {
                done: 0,
                next: begun + EVERY,
            })
        });
        Progress {
            name: name.into(),
            total,
            begun,
            told,
        }
    }

    /// Counts one more of the total as done. `detail` is what there is to say beside it.
    pub fn step<D: fmt::Display>(&self, detail: impl FnOnce() -> D) {
        let Some(told) = &self.told else {
            return;
        };
        let mut told = told.lock();
        told.done += 1;
        let now = Instant::now();
        if now >= told.next {
            told.next = now + EVERY;
            let seconds = self.begun.elapsed().as_secs();
            let Progress { name, total, .. } = self;
            eprintln!(
                "{name}: {} of {total}, {seconds} s, {}",
                told.done,
                detail()
            );
        }
    }
}

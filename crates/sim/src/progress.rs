//! Progress reports of long tests, on standard error and only in a soak.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(10);

/// A progress counter that may be shared between threads.
#[derive(Debug)]
pub struct Progress {
    name: String,
    total: usize,
    begun: Instant,
    /// None if progress is not displayed.
    shown: Option<Mutex<Shown>>,
}

#[derive(Debug)]
struct Shown {
    done: usize,
    next: Instant,
}

impl Progress {
    pub fn new(name: impl Into<String>, total: usize) -> Progress {
        let begun = Instant::now();
        let shown = std::env::var_os("UBTRFS_SOAK").map(|_| {
            Mutex::new(Shown {
                done: 0,
                next: begun + EVERY,
            })
        });
        Progress {
            name: name.into(),
            total,
            begun,
            shown,
        }
    }

    /// Counts one more step as complete. `detail` is additional text.
    pub fn step<D: fmt::Display>(&self, detail: impl FnOnce() -> D) {
        let Some(shown) = &self.shown else {
            return;
        };
        let mut shown = shown.lock();
        shown.done += 1;
        let now = Instant::now();
        if now >= shown.next {
            shown.next = now + EVERY;
            let seconds = self.begun.elapsed().as_secs();
            let Progress { name, total, .. } = self;
            eprintln!(
                "{name}: {} of {total}, {seconds} s, {}",
                shown.done,
                detail()
            );
        }
    }
}

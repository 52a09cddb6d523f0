//! `sync_queue` and `writeback_errors` under loom. It runs the interleavings of a few threads up to a number of
//! preemptions, with the memory orders that `sync` models.
//!
//! The sources are compiled here once more, in modules of the same names. `sync` has the atomics and locks of loom.

// The tests call a part of what the sources have.
#![allow(dead_code, unreachable_pub)]

#[path = "../../src/log/sync_queue.rs"]
mod sync_queue;
#[path = "../../src/inode/writeback_errors.rs"]
mod writeback_errors;

mod queue;
mod reports;
#[path = "../../../transaction/tests/models/sync.rs"]
mod sync;

/// Runs `threads` in each order with up to so many preemptions of a thread, and all others.
fn check(preemptions: usize, threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(threads);
}

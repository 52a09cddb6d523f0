//! Syncs side by side under loom. It runs each interleaving of a few threads, and each order of their memory accesses
//! that the language allows.
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

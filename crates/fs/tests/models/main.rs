//! `sync_queue` and `writeback_errors` under loom, which runs the interleavings of a few threads up to a
//! bound on preemptions. It respects the memory orders that `sync` models.
//!
//! The sources are compiled here again, in modules of the same names. `sync` exports loom's atomics and
//! locks.

// The tests use only a part of these sources.
#![allow(dead_code, unreachable_pub)]

#[path = "../../src/log/sync_queue.rs"]
mod sync_queue;
#[path = "../../src/inode/delalloc/writeback_errors.rs"]
mod writeback_errors;

mod queue;
mod reports;
#[path = "../../../storage/tests/models/sync.rs"]
mod sync;

/// Runs `threads` in all interleavings with at most `preemptions` preemptions.
fn check(preemptions: usize, threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(threads);
}

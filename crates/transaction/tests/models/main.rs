//! Eight files of the crate under loom: `space_info`, `nocow`, `trim_gate`, `root_item`, `edit_tallies`, `reservation`,
//! `reservation_cache` and `flush_order`. It runs the interleavings of a few threads up to a number of preemptions, with
//! the memory orders that `sync` models.
//!
//! The sources of the counters are compiled here once more, in modules of the same names. `sync` has the atomics and
//! locks of loom, and what the counters need of other modules is small here.

// The tests call a part of what the sources have.
#![allow(dead_code, unreachable_pub)]

mod flushes;
mod roots;
mod space;
mod sync;
mod transaction;

/// Runs `threads` in each order with up to so many preemptions of a thread, and all others.
fn check(preemptions: usize, threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(threads);
}

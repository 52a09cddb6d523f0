//! Nine files of the crate under loom: `space_info`, `nocow`, `nocow_writers`, `trim_gate`, `root_item`,
//! `flush_order`, and of `reservation` the files `edit_tallies`, `metadata` and `cache`. loom runs the interleavings
//! of a few threads up to a number of preemptions, with the memory orders that `sync` models.
//!
//! The sources of the counters are compiled here a second time, in modules of the same names. `sync` provides the
//! atomics and locks of loom. Other modules are replaced by minimal versions.

// The tests use only a part of the sources.
#![allow(dead_code, unreachable_pub)]

mod flushes;
mod roots;
mod space;
mod sync;
mod transaction;

/// Runs `threads` in each order with up to `preemptions` preemptions of a thread.
fn check(preemptions: usize, threads: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(threads);
}

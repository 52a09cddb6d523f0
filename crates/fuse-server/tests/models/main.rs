//! Two files of the crate under loom, which runs all interleavings of a few threads: `thread_count` and
//! `uring/switcher_sleep`.
//!
//! The sources are compiled here again. `sync` has the atomics and threads of loom.

// The modules are private in the crate.
#![allow(unreachable_pub)]

mod switcher_sleep;
mod sync;
mod thread_count;

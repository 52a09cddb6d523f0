//! `thread_count` under loom, which runs all interleavings of a few threads.
//!
//! The source is compiled here again. `sync` has the atomics of loom.

// The module is private in the crate.
#![allow(unreachable_pub)]

mod sync;
mod thread_count;

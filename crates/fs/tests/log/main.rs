//! The fsync log, replayed by the engine and by the kernel: both show the same state, and `btrfs check` finds
//! nothing.
//!
//! `UBTRFS_SOAK` selects more kinds of volumes.

mod attributes;
#[path = "../scripts/case_options.rs"]
mod case_options;
mod cut;
mod encoded;
mod failing;
mod failpoints;
mod kinds;
mod large_items;
mod refused;
mod replay;
mod scenarios;
#[path = "../scripts/shown.rs"]
mod shown;
mod situations;
mod threads;
mod workloads;
mod written;

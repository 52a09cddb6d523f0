//! Volumes whose power, devices or space fail, and damaged ones that are worked upon.
//!
//! `UBTRFS_SOAK` makes the runs long.

mod damaged;
mod devices;
mod engine;
mod failing_mirror;
mod full;
mod io_faults;
mod panics;
mod power_cut;
mod scripts;
#[path = "../scripts/shown.rs"]
mod shown;
mod soak;
#[path = "../scripts/target.rs"]
mod target;
mod thread_faults;
mod watchdog;

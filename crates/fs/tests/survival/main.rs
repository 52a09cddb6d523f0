//! Volumes with power, device or space failures, and operations on damaged volumes.
//!
//! `UBTRFS_SOAK` selects long runs.

mod damaged;
mod device_changes;
mod devices;
mod engine;
mod failing_mirror;
mod full;
mod io_faults;
mod mirror_repair;
mod panics;
mod power_cut;
mod replacement;
mod scripts;
#[path = "../scripts/shown.rs"]
mod shown;
mod soak;
#[path = "../scripts/target.rs"]
mod target;
mod thread_faults;
mod watchdog;

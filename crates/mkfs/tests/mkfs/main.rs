//! New volumes, checked by our own reader, by btrfs-progs and by the kernel.
//!
//! `memory` runs anywhere; `progs` and `kernel` need root, the kernel's btrfs and btrfs-progs, and report if they are
//! missing. With `UBTRFS_SOAK` set, they run every combination.

mod cases;
mod failing;
mod fill;
mod kernel;
mod memory;
mod progs;

//! What becomes of volumes when power, devices or space fail, and of damaged ones that are worked upon.
//!
//! `UBTRFS_SOAK` makes the runs long.

mod devices;
mod power_cut;
mod target;

//! The mount: a btrfs volume as a FUSE file system.
//!
//! - `adapter`: a volume as a file system that the crate `ubtrfs-fuse-server` serves
//! - `ioctl_args`: numbers and arguments of the btrfs ioctls
//! - `caller`: the callers of btrfs ioctls, and their rights
//! - `stats`: live figures
//! - `mount_table`: the kernel's table of mounts
//! - `mount`: options, mounting, unmounting, and a mount's life as a process

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod adapter;
pub mod caller;
pub mod ioctl_args;
pub mod mount;
mod mount_table;
pub mod stats;

pub use adapter::{Changes, KernelPages};

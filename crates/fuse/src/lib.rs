//! The mount: a btrfs volume as a FUSE file system.
//!
//! - `request`: the requests that a file system answers, whatever carries them
//! - `transport`: what carries them
//! - `adapter`: a volume as such a file system
//! - `ioctl_args`: what the ioctls of btrfs carry
//! - `caller`: who asks for what only btrfs has, and what they may do
//! - `stats`: live figures
//! - `mount_table`: the kernel's table of mounts
//! - `mount`: options, mounting, unmounting, and a mount's life as a process

mod adapter;
pub mod caller;
pub mod ioctl_args;
pub mod mount;
mod mount_table;
pub mod request;
pub mod stats;
mod transport;

pub use adapter::{Changes, KernelPages};

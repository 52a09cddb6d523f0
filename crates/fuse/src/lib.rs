//! The mount: a btrfs volume as a FUSE file system.
//!
//! - `request`: the requests that a file system answers, whatever carries them
//! - `transport`: what carries them
//! - `adapter`: a volume as such a file system
//! - `mount`: options, mounting, unmounting, and a mount's life as a process

mod adapter;
pub mod mount;
pub mod request;
mod transport;

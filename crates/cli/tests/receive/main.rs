//! `ubtrfs receive`, compared with `btrfs receive`: streams of the kernel, and streams that no kernel sends.
//!
//! Streams of the kernel need root, the kernel's btrfs and btrfs-progs; without them the tests print that and
//! pass.

mod alike;
mod dump;
mod hostile;
mod images;
mod kernel_mounts;
mod mounts;
mod source;

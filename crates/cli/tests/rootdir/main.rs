//! `ubtrfs mkfs --rootdir`: volumes with files in them. Both checkers check them, the kernel mounts them, and
//! the files are compared with the original folder.
//!
//! Checks that need the kernel or btrfs-progs print a message when these are missing.

mod archive;
mod formats;
mod judges;
mod kernel_source;
mod limits;
mod owners;
mod process;
mod refusals;
mod repeats;
mod tree;

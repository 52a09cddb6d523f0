//! `ubtrfs mkfs --rootdir`: volumes with files in them, judged by both checkers, by the kernel's mount, and
//! beside the folder that they were made of.
//!
//! Judges that need the kernel or btrfs-progs say so when they are missing.

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

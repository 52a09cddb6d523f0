//! Namespace and attribute operations on volumes in memory. Results are read before and after a commit, and
//! after reopening. `btrfs check` and the kernel check them where available.

mod acls;
mod attributes;
mod create;
mod fixture;
mod flags;
mod kernel_check_accepts;
mod lazy_times;
mod links;
mod lookups;
mod orphans;
mod rename;
mod subvolumes;
mod threads;
mod unlink;
mod xattrs;

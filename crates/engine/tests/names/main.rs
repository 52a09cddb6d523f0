//! Namespace and attribute operations on volumes in memory. They are read back before and after a commit, and after
//! opening anew. `btrfs check` and the kernel judge them where those are at hand.

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

//! The fsync log: what was synced since the last commit.
//!
//! The log of a subvolume is a tree of its own, with copies of the items that were synced. The log root tree names these
//! trees, and the superblock names the log root tree. A log goes on from the last commit, and ends with the next one.
//!
//! Not here: blocks of trees (`ubtrfs_tree`), when a commit is due (`volume`).

mod logged_name;
mod read;
mod replay;
mod sync_queue;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use replay::{replay, replay_in_memory};
pub(crate) use write::TreeLog;

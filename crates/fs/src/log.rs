//! The fsync log (tree log): the changes that were synced since the last commit.
//!
//! The log of a subvolume is a separate tree with copies of the synced items. The log root tree names these
//! trees, and the superblock names the log root tree. A log extends the last commit, and the next commit
//! drops it.
//!
//! Not here: tree blocks (`ubtrfs_tree`), the timing of commits (`volume`).

mod logged_name;
mod read;
mod replay;
mod sync_queue;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use replay::{replay, replay_in_memory};
pub(crate) use write::TreeLog;

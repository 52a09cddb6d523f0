//! Reports of a volume's insides: space, chunks, the users of a block, the layout of trees.
//!
//! These functions answer a person's questions. They read whole trees where the question needs it and
//! are no part of serving files.

mod du;
mod quota;
mod resolve;
mod space;
mod statfs;
mod tree_stats;

pub use du::{FileUsage, SharedRanges, SharingCache};
pub use quota::SubvolumeQuota;
pub use space::{ChunkUse, DeviceAllocation, ProfileUsage};
pub use tree_stats::TreeStats;
pub use ubtrfs_transaction::{DataExtent, ExtentUser, RootsOfBlocks};

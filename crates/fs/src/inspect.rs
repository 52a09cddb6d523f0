//! Reports about the internals of a volume: space, chunks, the users of a block, the layout of trees.
//!
//! These functions serve administrators. They may read whole trees, and are not used to serve files.

mod du;
mod quota;
mod resolve;
mod space;
mod statfs;
mod tree_stats;

pub use du::{FileUsage, SharedRanges, SharingCache};
pub use quota::{SubvolumeQuota, decode_quota};
pub use space::{ChunkUse, DeviceAllocation, ProfileUsage};
pub use tree_stats::TreeStats;
pub use ubtrfs_storage::{DataExtent, ExtentUser, RootsOfBlocks};

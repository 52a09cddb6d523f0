//! One B-tree: views, cursors, uncommitted changes, and the cache of blocks. Items are opaque here.
//!
//! A reader sees a [`View`]: a stack of sorted sets, with the committed root on disk as the lowest. All code above
//! this crate reads through views and cursors, so that the sets above the committed one are private to this crate.
//! Changes are made in a [`LiveTree`]; [`apply`] turns them into a new root.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod apply;
mod block;
mod build;
mod bulk;
mod committed;
mod comparison;
mod cursor;
mod delta;
mod epoch;
mod error;
mod live;
mod mark_watch;
mod path;
mod placement;
mod prefetch;
mod recent_leaves;
mod staged;
mod store;
#[cfg(test)]
mod test_volume;
mod view;

pub use apply::{ApplyIo, Change, apply};
pub use block::{Block, Item};
pub use build::{BlockFormat, BlockSink, BuildError, TreeBlock};
pub use bulk::{BulkTree, TreeRoot};
pub use committed::CommittedRoot;
pub use comparison::{Comparison, Difference};
pub use cursor::Cursor;
pub use delta::{DeltaSize, Edit, FrozenSet};
pub use epoch::Epoch;
pub use error::TreeError;
pub use live::LiveTree;
pub use mark_watch::MarkWatcher;
pub use placement::{PlacedBlock, Placement, PushItem, TreeShapes, WholeTrees, build_trees};
pub use recent_leaves::RecentLeaves;
pub use store::{NodeStore, StoreOptions, StoreStats};
pub use view::View;

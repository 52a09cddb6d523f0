//! One B-tree: views, cursors, and the cache of verified nodes. Knows no item's meaning.
//!
//! A reader sees a [`View`]: a stack of sorted sets of which the committed root on disk is the lowest.
//! Everything above this crate reads through views and cursors only, so what lies on top of the
//! committed set is this crate's affair.

mod apply;
mod block;
mod build;
mod bulk;
mod cursor;
mod error;
mod store;
mod view;

pub use apply::{ApplyIo, Change, apply};
pub use block::{Block, Item};
pub use build::{BlockFormat, BlockSink, BuildError, TreeBlock};
pub use bulk::{BulkTree, TreeRoot};
pub use cursor::Cursor;
pub use error::TreeError;
pub use store::{NodeStore, StoreOptions, StoreStats};
pub use view::{CommittedRoot, View};

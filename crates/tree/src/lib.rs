//! One B-tree: views, cursors, and the cache of verified nodes. Knows no item's meaning.
//!
//! A reader sees a [`View`]: a stack of sorted sets of which the committed root on disk is the lowest.
//! Everything above this crate reads through views and cursors only, so what lies on top of the
//! committed set is this crate's affair.

mod block;
mod cursor;
mod error;
mod store;
mod view;

pub use block::{Block, Item};
pub use cursor::Cursor;
pub use error::TreeError;
pub use store::{NodeStore, StoreOptions, StoreStats};
pub use view::{CommittedRoot, View};

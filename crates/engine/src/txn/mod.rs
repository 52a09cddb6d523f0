//! Transactions: what a commit makes of the changes that operations left.

#[allow(dead_code, reason = "the commit is the only caller")]
pub(crate) mod delayed_refs;
#[allow(dead_code, reason = "the commit is the only caller")]
pub(crate) mod extent_items;

pub use delayed_refs::{ExtentShape, RefKey};
pub use extent_items::RefError;

//! What the engine reports.

pub use ubtrfs_transaction::{
    CorruptItem, Error, ExtentShape, RefError, RefKey, Result, SpaceError,
};

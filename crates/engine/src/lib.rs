//! The file system: what the items of the trees mean together.
//!
//! From low to high: `space` and `roots` (trees by id) < `csum_tree` < `transaction` < `inode` < `file` (data) < `namespace` <
//! `subvolume` < `volume` (the public face) < `inspect` (reports). Reading goes through views of the trees and never blocks
//! a reader on another's IO except for the same cold block.

mod csum_tree;
mod error;
mod file;
mod file_id;
mod inode;
pub mod inspect;
#[doc(hidden)]
pub mod layers;
mod lock;
mod namespace;
mod roots;
mod space;
mod subvolume;
mod transaction;
mod volume;

pub use error::{CorruptItem, Error, ExtentShape, RefError, RefKey, Result, SpaceError};
pub use file::{CacheStats, Fallocate};
pub use file_id::FileId;
pub use inode::{AtimePolicy, Attr, Compress, LookupRefs, SetAttr, SetTime, XattrMode};
pub use namespace::{DirEntry, LastName, NewInode, PathEnd, RenameMode};
pub use roots::{BlockGroup, Rescue, SubvolumePlace, Tree};
pub use subvolume::{ReceivedFrom, SubvolumeInfo};
pub use transaction::{CommitPhases, Lifetime, Waits, WriterStats};
pub use ubtrfs_format::block_group_flags::SpaceKind;
pub use ubtrfs_format::item::{FileKind, FileTime};
pub use ubtrfs_tree::{BuildError, StoreStats, TreeError};
pub use volume::{LEAST_MEMORY_BYTES, OpenFile, OpenOptions, StatFs, Volume};

//! The file system: what the items of the trees mean together.
//!
//! From low to high: `space` < `transaction` < `data` (bytes of files) < `fs` (inodes, names) < `subvol` <
//! `volume` (opening, trees by id). Reading goes through views of the trees and never blocks a reader on another's IO
//! except for the same cold block.

mod data;
mod error;
mod file_id;
mod fs;
pub mod inspect;
#[doc(hidden)]
pub mod layers;
mod lock;
mod roots;
mod space;
mod subvol;
mod transaction;
mod volume;

pub use data::{CacheStats, Compress, Fallocate};
pub use error::{CorruptItem, Error, Result};
pub use file_id::FileId;
pub use fs::{
    AtimePolicy, Attr, DirEntry, LastName, LookupRefs, NewInode, OpenFile, PathEnd, RenameMode,
    SetAttr, SetTime, XattrMode,
};
pub use roots::{BlockGroup, Rescue, Tree};
pub use space::SpaceError;
pub use subvol::{ReceivedFrom, SubvolumeInfo, SubvolumePlace};
pub use transaction::{CommitPhases, ExtentShape, Lifetime, RefError, RefKey, Waits, WriterStats};
pub use ubtrfs_format::block_group_flags::SpaceKind;
pub use ubtrfs_format::item::{FileKind, FileTime};
pub use ubtrfs_tree::{BuildError, StoreStats, TreeError};
pub use volume::{LEAST_MEMORY_BYTES, OpenOptions, StatFs, Volume};

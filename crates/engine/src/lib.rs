//! The file system: what the items of the trees mean together.
//!
//! From low to high: `data` (bytes of files) < `fs` (inodes, names) < `subvol` < `volume` (opening,
//! trees by id). Reading goes through views of the trees and never blocks a reader on another's IO
//! except for the same cold block.

mod data;
mod error;
mod fs;
pub mod inspect;
pub mod mkfs;
mod subvol;
mod txn;
mod volume;

pub use error::{CorruptItem, Error, Result};
pub use fs::{Attr, DirEntry, FileId, FileTime};
pub use subvol::{SubvolumeInfo, SubvolumePlace};
pub use txn::{ExtentShape, RefError, RefKey};
pub use ubtrfs_format::item::FileKind;
pub use volume::{BlockGroup, OpenOptions, StatFs, Tree, Volume};

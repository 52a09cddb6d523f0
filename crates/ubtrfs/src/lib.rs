//! btrfs in user space, embedded in a program.
//!
//! A [`Volume`] is a real btrfs file system in a file, on a device or in memory. The kernel can mount what is written here,
//! and what the kernel wrote can be opened here. No mount, no root, no kernel module.
//!
//! ```
//! use ubtrfs::{Access, Volume};
//!
//! # fn main() -> Result<(), ubtrfs::Error> {
//! let volume = Volume::in_memory(256 << 20)?;
//! volume.create_subvolume("/data")?;
//! volume.write("/data/notes", b"first")?;
//! volume.snapshot("/data", "/before", Access::ReadOnly)?;
//! volume.write("/data/notes", b"second")?;
//!
//! assert_eq!(volume.read("/before/notes")?, b"first");
//! assert_eq!(volume.read("/data/notes")?, b"second");
//! volume.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! Paths begin at the root of the [`Volume`], with or without a slash, and may lead through subvolumes. A path means what
//! it means to `std::fs`, and an error has the [`std::io::ErrorKind`] that it has there ([`Error::kind`]).
//! All methods may be called from many threads. Changes are in memory until [`Volume::sync`], the commit
//! interval (30 s by default) or memory pressure commits them. A commit takes all that happened before: after a power cut
//! the volume is as of a commit.
//!
//! Below paths there are inode handles: [`Volume::engine`] gives the engine, which works on
//! [`FileId`]s, and has everything that a file system server needs.

mod error;
mod file;
mod open;
mod paths;
mod properties;
mod removal;
mod subvolumes;
pub mod transfer;

pub use error::{Error, Result};
pub use file::File;
pub use open::{Builder, Volume};
pub use subvolumes::Access;
pub use ubtrfs_device::{BlockDevice, FileDevice, MemDevice};
pub use ubtrfs_engine::{
    Attr, Compress, DirEntry, Error as EngineError, FileId, FileKind, FileTime, NewInode,
    RenameMode, SetAttr, SetTime, SubvolumeInfo, SubvolumePlace, XattrMode,
};
pub use ubtrfs_format::block_group_flags::Profile;
pub use ubtrfs_format::compress::Compression;
pub use ubtrfs_format::csum::CsumType;
pub use ubtrfs_format::ids::{InodeNr, RootId, Transid};
pub use ubtrfs_format::item::{InodeFlags, RootItem};
pub use ubtrfs_mkfs::{FeatureSet, MkfsError, MkfsOptions};

/// Examples of a page for users, which are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding_page {}

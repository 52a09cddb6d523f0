//! btrfs in user space, embedded in a program.
//!
//! A [`Volume`] is a real btrfs file system in a file, on a device or in memory. The kernel can mount a volume that
//! this library wrote, and this library can open a volume that the kernel wrote. It needs no mount, no root rights and
//! no kernel module.
//!
//! ```
//! use ubtrfs::{Access, Volume};
//!
//! # fn main() -> Result<(), ubtrfs::Error> {
//! let volume = Volume::in_memory(256 << 20)?;
//! let data = volume.root().create_subvolume("/data")?;
//! data.write("/notes", b"first")?;
//! volume.root().snapshot("/data", "/before", Access::ReadOnly)?;
//! data.write("/notes", b"second")?;
//!
//! assert_eq!(volume.root().read("/before/notes")?, b"first");
//! assert_eq!(volume.root().read("/data/notes")?, b"second");
//! volume.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Volume`]: opening, creating and committing volumes; the label; lists of subvolumes
//! - [`Subvolume`]: the operations of [`std::fs`] by path, subvolumes and snapshots
//! - [`File`], [`OpenOptions`], [`DirBuilder`], [`ReadDir`], [`Metadata`]: like the types of `std::fs`
//! - [`Dir`]: an open directory, for creating, snapshotting and deleting subvolumes on behalf of a [`Caller`] with
//!   fewer rights
//! - [`Walk`], [`WalkDirs`]: all files below a directory
//! - [`Snapshot`]: sending and comparing snapshots. [`Subvolume::receive`] applies streams, and [`StreamDump`] displays
//!   them
//! - [`Subvolume::copy_tree`], `copy_from_host`, `copy_to_host`, `import_tar`, `export_tar`, `remove_tree`: whole
//!   trees
//! - [`scan`]: the volumes on devices, in images and in folders
//! - [`Checker`]: consistency checks
//! - [`Mkfs`]: new volumes with a chosen identity and initial contents
//! - [`Progress`]: the progress of long operations, and their cancellation
//! - [`Error`]: the operation, its paths, and the [`std::io::ErrorKind`] that `std::fs` has for the same failure
//!
//! # Durability
//!
//! Changes stay in memory until [`Volume::sync`], the commit interval (30 s by default) or memory pressure commits
//! them. A commit includes all earlier changes: after a power cut the volume has the state of a commit.
//! [`File::sync_all`] makes one file durable.
//!
//! # Untrusted volumes
//!
//! Images and devices are untrusted: arbitrary bytes cause an error, never a panic, a hang or unbounded memory use.
//! Data is verified by its checksums when it is read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![warn(missing_docs)]

mod attributes;
mod caller;
mod changes;
mod checking;
mod copies;
mod damage;
mod dir;
mod dir_builder;
mod discarding;
mod disk_usage;
mod error;
mod escaped;
mod file;
mod file_device;
mod handle;
mod host_owners;
mod lineage;
mod metadata;
mod mkfs;
mod mkfs_options;
mod new_extents;
mod opening;
mod paths;
mod read_dir;
mod receiving;
mod reexports;
mod removal;
mod report;
mod scanning;
mod sibling_devices;
mod snapshot;
mod subvolume;
mod transfer;
mod trees;
mod volume;
mod walk;
mod walk_dirs;

pub use caller::Caller;
pub use changes::{Change, ChangeKind, Changes, FileAttributes, XattrChange, XattrChangeKind};
pub use checking::{
    CheckFault, CheckFigures, CheckIssue, CheckPlace, CheckReport, Checker, OpenCheck, Severity,
};
pub use copies::CopyOptions;
pub use dir::{Dir, SubvolumePlace};
pub use dir_builder::DirBuilder;
pub use discarding::{DiscardLimits, TrimOptions};
pub use disk_usage::{DiskUsage, FileSpace, UsageMeter};
pub use error::{Error, Result};
pub use escaped::Escaped;
pub use file::{File, OpenOptions};
pub use file_device::FileDevice;
pub use host_owners::HostOwners;
pub use lineage::Lineage;
pub use metadata::{FileFlags, FileTimes, Metadata};
pub use mkfs::{FilledContents, MadeVolume, Mkfs, PlannedVolume};
pub use mkfs_options::{CsumType, Feature, FeatureListError, FeatureSet, Geometry, MkfsOptions};
pub use new_extents::{NewExtent, NewExtents};
pub use read_dir::{DirEntry, ReadDir};
pub use receiving::{ReceiveOptions, StreamDump};
pub use reexports::*;
pub use removal::RemoveOptions;
pub use report::{
    BlockGroupKind, BlockGroupSpace, DeviceAllocation, DeviceErrors, DeviceInfo, Space, Statistics,
    SubvolumeQuota,
};
pub use scanning::{FoundDevice, FoundVolume, scan, scan_devices, scan_with_siblings};
pub use sibling_devices::sibling_devices;
pub use snapshot::{SendOptions, Snapshot};
pub use subvolume::{Access, Subvolume, SubvolumeInfo};
pub use transfer::copy::{Reflink, Sparse};
pub use trees::{ImportOptions, Problems};
pub use volume::{Builder, ClearedLog, Volume};
pub use walk::{Walk, WalkOptions};
pub use walk_dirs::{ListedDir, WalkDirs};

/// The examples of the user manual, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding_page {}

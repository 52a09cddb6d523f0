//! New volumes: `mkfs.btrfs` as a library.
//!
//! [`MkfsOptions`] are the parameters, [`Identity`] contains UUIDs and the creation time. [`Plan::new`] builds every
//! block of the volume in memory without touching a device; [`Plan::write`] writes them. A plan is a function of its
//! inputs: the same options, identity and sizes give the same bytes. [`fill()`] creates a volume with the files of a
//! directory tree or a tar archive. [`archive`] reads such archives, also for other crates.
//!
//! The layout is the same as from mkfs.btrfs 6.14, except for addresses and transaction numbers. Transaction 1 creates
//! everything, whereas mkfs.btrfs uses several and moves blocks.
//!
//! Not here: whether a device may be overwritten (`device::find_signature` detects its contents, the caller decides),
//! files on existing volumes.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod archive;
mod chunk_growth;
mod chunks;
mod error;
mod extents;
mod features;
mod files;
mod fill;
mod options;
mod place;
mod plan;
mod superblock;
mod targets;
mod tree_placement;
mod trees;

pub use chunks::{PlannedChunk, PlannedDevice, VolumeChunks};
pub use error::MkfsError;
pub use features::{Feature, FeatureListError, FeatureSet, QuotaMode};
pub use fill::{
    ArchiveError, ArchiveReader, FillError, FillOptions, FillStats, FilledVolume, FlagsRequest,
    Growth, Input, LeftOutAcls, Scratch, SubvolumeRequest, TimeRule, fill,
};
pub use options::{Geometry, Identity, MkfsOptions, Warning};
pub use plan::Plan;
pub use targets::PlannedWrite;

//! New volumes: `mkfs.btrfs` as a library.
//!
//! [`MkfsOptions`] say what is wanted, [`Identity`] brings the random and the current. [`Plan::new`] makes
//! every block of the volume in memory without touching a device; [`Plan::write`] puts them down. A plan
//! is a function of its inputs: the same options, identity and sizes give the same bytes. [`fill()`] makes a volume
//! with the files of a folder or a tar archive. [`archive`] reads such archives, for other crates as well.
//!
//! The layout is what mkfs.btrfs 6.14 leaves, but for places and transaction numbers. Transaction 1 makes it all, where
//! mkfs.btrfs takes several and moves things about.
//!
//! Not here: whether a device may be overwritten (`device::find_signature` tells what lies on it, the caller decides),
//! files on volumes that exist.

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
pub use features::{FEATURES, Feature, FeatureListError, FeatureSet, QuotaMode};
pub use fill::{
    ArchiveError, ArchiveReader, FillError, FillObserver, FillOptions, FillStats, FilledVolume,
    FlagsRequest, Growth, Input, LeftOutAcls, Scratch, SubvolumeRequest, TimeRule, fill,
};
pub use options::{Geometry, Identity, MkfsOptions, Warning};
pub use plan::Plan;
pub use targets::PlannedWrite;

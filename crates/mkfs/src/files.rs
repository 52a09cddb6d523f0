//! The contents of a new volume: subvolumes with their files, checksums and data.
//!
//! The trees of files can be larger than memory, so items are pushed one by one.
//!
//! Not here: the source of the items (`fill`).

use std::ops::Range;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::PushItem;

use super::chunks::Place;
use super::error::MkfsError;
use super::options::Identity;

/// A subvolume of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subvolume {
    pub(super) id: RootId,
    pub(super) uuid: Uuid,
    pub(super) is_read_only: bool,
    /// The directory entry; None for the top level.
    pub(super) entry: Option<SubvolumeEntry>,
    /// Bytes on disk.
    pub(super) data_bytes: u64,
}

/// The directory entry of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SubvolumeEntry {
    pub(super) parent: RootId,
    pub(super) dir: InodeNr,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// A consumer of items in key order.
pub(super) type Push<'a> = PushItem<'a, MkfsError>;

pub(super) trait Files {
    /// Returns the subvolumes: the top level first, then by id.
    fn subvolumes(&self) -> &[Subvolume];

    /// Returns the subvolume that is mounted by default.
    fn default_subvolume(&self) -> RootId;

    /// Returns whether there are files. False for a volume with only the empty top level.
    fn has_items(&self) -> bool;

    fn each_item(&self, subvolume: RootId, push: &mut Push<'_>) -> Result<(), MkfsError>;

    fn each_csum(&self, push: &mut Push<'_>) -> Result<(), MkfsError>;

    /// Pushes the extent items of the data.
    fn each_extent(&self, push: &mut Push<'_>) -> Result<(), MkfsError>;

    /// Returns the ranges used by data in a chunk, as logical addresses, ascending and disjoint.
    fn used(&self, chunk: usize) -> &[Range<u64>];

    /// Returns the end of the data.
    fn data_end(&self) -> Place;
}

/// An empty top level.
#[derive(Debug)]
pub(super) struct NoFiles {
    top_level: [Subvolume; 1],
}

impl NoFiles {
    pub(super) fn new(identity: &Identity) -> NoFiles {
        NoFiles {
            top_level: [Subvolume {
                id: RootId::FS_TREE,
                uuid: identity.fs_tree_uuid,
                is_read_only: false,
                entry: None,
                data_bytes: 0,
            }],
        }
    }
}

impl Files for NoFiles {
    fn subvolumes(&self) -> &[Subvolume] {
        &self.top_level
    }

    fn default_subvolume(&self) -> RootId {
        RootId::FS_TREE
    }

    fn has_items(&self) -> bool {
        false
    }

    fn each_item(&self, _subvolume: RootId, _push: &mut Push<'_>) -> Result<(), MkfsError> {
        Ok(())
    }

    fn each_csum(&self, _push: &mut Push<'_>) -> Result<(), MkfsError> {
        Ok(())
    }

    fn each_extent(&self, _push: &mut Push<'_>) -> Result<(), MkfsError> {
        Ok(())
    }

    fn used(&self, _chunk: usize) -> &[Range<u64>] {
        &[]
    }

    fn data_end(&self) -> Place {
        Place::default()
    }
}

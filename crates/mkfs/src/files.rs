//! Contents of a new volume besides itself: its subvolumes, their files, checksums and data.
//!
//! The trees of files can be larger than memory, so their items flow by and are not given as lists.
//!
//! Not here: where the items come from (`fill`).

use std::ops::Range;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::uuid::Uuid;

use super::chunks::Place;
use super::error::MkfsError;
use super::options::Identity;

/// A subvolume of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subvolume {
    pub(super) id: RootId,
    pub(super) uuid: Uuid,
    pub(super) is_read_only: bool,
    /// The entry of all but the top level.
    pub(super) entry: Option<SubvolumeEntry>,
    /// On disk.
    pub(super) data_bytes: u64,
}

/// Where a subvolume is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SubvolumeEntry {
    pub(super) parent: RootId,
    pub(super) dir: InodeNr,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// Takes items in key order.
pub(super) type Push<'a> = dyn FnMut(Key, &[u8]) -> Result<(), MkfsError> + 'a;

pub(super) trait Files {
    /// Returns the subvolumes: the top level first, then by id.
    fn subvolumes(&self) -> &[Subvolume];

    /// Returns the subvolume that a mount shows.
    fn default_subvolume(&self) -> RootId;

    /// Returns whether a subvolume has items. False if it is the empty one that every volume can have.
    fn has_items(&self) -> bool;

    fn each_item(&self, subvolume: RootId, push: &mut Push<'_>) -> Result<(), MkfsError>;

    fn each_csum(&self, push: &mut Push<'_>) -> Result<(), MkfsError>;

    /// Pushes the extent items of the data.
    fn each_extent(&self, push: &mut Push<'_>) -> Result<(), MkfsError>;

    /// Returns the ranges of a chunk that data takes, in logical addresses, ascending and disjoint.
    fn used(&self, chunk: usize) -> &[Range<u64>];

    /// Returns the first place that no data has come to.
    fn data_end(&self) -> Place;
}

/// One empty subvolume.
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

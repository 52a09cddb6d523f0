//! The result of a walk over files: items, checksums and extents, stored until the trees are built.

use std::cell::RefCell;
use std::io::Read;
use std::ops::Range;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::Log;

use super::data_space::{PlacedData, PlacedExtent};
use super::item_sorter::SortedItems;
use super::scratch::Scratch;
use super::watch::FillWatch;
use crate::chunks::Place;
use crate::error::MkfsError;
use crate::extents::data_extent;
use crate::files::{Files, Push, Subvolume};
use crate::options::Geometry;

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) subvolumes: Vec<Subvolume>,
    pub(super) default_subvolume: RootId,
    pub(super) items: SortedItems,
    pub(super) extents: ExtentLog,
}

#[derive(Debug)]
pub(super) struct Filled<'a, 'o> {
    pub(super) geometry: &'a Geometry,
    pub(super) walked: Walked,
    pub(super) data: PlacedData,
    /// Consulted during each pass over the items, because there are several.
    pub(super) watch: RefCell<FillWatch<'o>>,
}

impl Files for Filled<'_, '_> {
    fn subvolumes(&self) -> &[Subvolume] {
        &self.walked.subvolumes
    }

    fn default_subvolume(&self) -> RootId {
        self.walked.default_subvolume
    }

    fn has_items(&self) -> bool {
        true
    }

    fn each_item(&self, subvolume: RootId, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut watch = self.watch.borrow_mut();
        watch.pass_items(push, |push| self.walked.items.each(subvolume, push))
    }

    fn each_csum(&self, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut watch = self.watch.borrow_mut();
        watch.pass_items(push, |push| self.data.csums.each(push))
    }

    fn each_extent(&self, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut watch = self.watch.borrow_mut();
        watch.pass_items(push, |push| self.walked.extents.each(self.geometry, push))
    }

    fn used(&self, chunk: usize) -> &[Range<u64>] {
        self.data.used.get(chunk).map_or(&[], Vec::as_slice)
    }

    fn data_end(&self) -> Place {
        self.data.end
    }
}

/// Data extents in address order, each with its single reference.
#[derive(Debug)]
pub(super) struct ExtentLog {
    log: Log,
}

impl ExtentLog {
    pub(super) fn new(scratch: &Scratch) -> ExtentLog {
        ExtentLog { log: scratch.log() }
    }

    pub(super) fn push(
        &mut self,
        subvolume: RootId,
        ino: u64,
        extent: &PlacedExtent,
    ) -> Result<(), MkfsError> {
        let fields = [
            extent.logical.0,
            extent.disk_bytes,
            subvolume.0,
            ino,
            extent.file_offset,
        ];
        let bytes: Vec<u8> = fields.into_iter().flat_map(u64::to_le_bytes).collect();
        self.log.push(&bytes).map_err(MkfsError::Scratch)?;
        Ok(())
    }

    fn each(&self, geometry: &Geometry, push: &mut Push<'_>) -> Result<(), MkfsError> {
        let mut reader = self.log.read();
        let mut bytes = [0; 40];
        let mut item = Vec::new();
        while !reader.is_at_end() {
            reader.read_exact(&mut bytes).map_err(MkfsError::Scratch)?;
            let (fields, _) = bytes.as_chunks();
            let field = |number: usize| u64::from_le_bytes(fields[number]);
            let (Logical(logical), len) = (Logical(field(0)), field(1));
            data_extent(geometry, RootId(field(2)), field(3), field(4), &mut item);
            push(Key::new(logical, KeyType::EXTENT_ITEM, len), &item)?;
        }
        Ok(())
    }
}

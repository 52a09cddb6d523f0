//! The space of logs: their blocks, and data written after the last commit.
//!
//! This space has no extent items, and must be free as of the last commit. Each block belongs to one log. Files may
//! share data.

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::Sorter;
use ubtrfs_tree::View;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::volume::CheckedVolume;

const BLOCK: u64 = 0;
const DATA: u64 = 1;

pub(super) struct LogSpace<'v> {
    volume: &'v CheckedVolume,
    /// The extent tree.
    extents: Option<View>,
    nodesize: u64,
    /// Start, end, kind.
    taken: Sorter<[u64; 3]>,
}

impl<'v> LogSpace<'v> {
    pub(super) fn new(
        state: &State<'_>,
        volume: &'v CheckedVolume,
        extents: Option<View>,
    ) -> LogSpace<'v> {
        LogSpace {
            volume,
            extents,
            nodesize: volume.nodesize() as u64,
            taken: state.sorter(),
        }
    }

    pub(super) fn add_block(
        &mut self,
        state: &mut State<'_>,
        bytenr: u64,
    ) -> Result<(), CheckError> {
        let at = Place::tree(RootId::TREE_LOG).at(bytenr);
        let end = bytenr.saturating_add(self.nodesize);
        self.check_chunk(state, at, (bytenr, end), BlockGroupFlags::METADATA);
        if self.is_allocated(bytenr, end) {
            state.add(at, Fault::LogBlockAllocated {});
        }
        Ok(self.taken.push([bytenr, end, BLOCK])?)
    }

    /// Adds the whole extent used by a file in the log.
    pub(super) fn add_data(
        &mut self,
        state: &mut State<'_>,
        at: Place,
        (start, length): (u64, u64),
    ) -> Result<(), CheckError> {
        let end = start.saturating_add(length);
        let at = at.at(start);
        if self.is_known(start, length) {
            return Ok(());
        }
        self.check_chunk(state, at, (start, end), BlockGroupFlags::DATA);
        if self.is_allocated(start, end) {
            state.add(at, Fault::LogExtentInUse { length });
        }
        Ok(self.taken.push([start, end, DATA])?)
    }

    fn check_chunk(
        &self,
        state: &mut State<'_>,
        at: Place,
        (start, end): (u64, u64),
        wanted: BlockGroupFlags,
    ) {
        let chunk = self.volume.pool().chunk_map().find(Logical(start));
        let Some(chunk) = chunk.filter(|chunk| end <= chunk.end().0) else {
            let lost = state.has_lost(RootId::CHUNK_TREE);
            let length = end - start;
            state.add_unless(lost, at, Fault::ExtentOutsideChunk { length });
            return;
        };
        if !chunk.flags().intersects(wanted) {
            let flags = chunk.flags().bits();
            state.add(at, Fault::ExtentChunkType { flags });
        }
    }

    /// Returns whether the extent exists in the last commit.
    fn is_known(&self, start: u64, length: u64) -> bool {
        let key = Key::new(start, KeyType::EXTENT_ITEM, length);
        let found = self.extents.as_ref().map(|view| view.get(&key));
        // An unreadable block is reported elsewhere.
        found.is_some_and(|found| !matches!(found, Ok(None)))
    }

    /// Returns whether the range overlaps an extent of the last commit.
    fn is_allocated(&self, start: u64, end: u64) -> bool {
        let Some(view) = &self.extents else {
            return false;
        };
        let mut cursor = view.cursor();
        let last = Key::new(end.saturating_sub(1), KeyType(u8::MAX), u64::MAX);
        let mut more = cursor.seek_floor(&last).unwrap_or(false);
        while more && let Some((key, _)) = cursor.current() {
            let length = match key.item_type {
                KeyType::EXTENT_ITEM => Some(key.offset),
                KeyType::METADATA_ITEM => Some(self.nodesize),
                _ => None,
            };
            if let Some(length) = length {
                return key.objectid.saturating_add(length) > start;
            }
            more = cursor.retreat().unwrap_or(false);
        }
        false
    }

    /// Checks the space of all logs for overlaps.
    pub(super) fn finish(self, state: &mut State<'_>) -> Result<(), CheckError> {
        let mut sorted = self.taken.finish()?;
        let mut before: Option<[u64; 3]> = None;
        while let Some(taken) = sorted.next_record()? {
            let Some(last) = before else {
                before = Some(taken);
                continue;
            };
            let is_shared = taken == last && taken[2] == DATA;
            if taken[0] < last[1] && !is_shared {
                let at = Place::tree(RootId::TREE_LOG).at(taken[0]);
                let before_end = last[1];
                state.add(at, Fault::LogOverlap { before_end });
            }
            if taken[1] >= last[1] {
                before = Some(taken);
            }
        }
        Ok(())
    }
}

//! Sequential allocation in chunks of a given type, without the ranges of superblock copies.
//!
//! Not here: the contents of the places.

use std::ops::Range;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{Logical, RootId};

use super::chunks::{Place, VolumeChunks};
use super::error::MkfsError;

/// Allocates addresses in chunks of one type, in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    flags: BlockGroupFlags,
    next: Place,
    /// The superblock ranges in the chunk with this index.
    superblocks: (usize, Vec<Range<u64>>),
}

impl Cursor {
    /// Begins the allocation at `next`.
    pub(super) fn new(flags: BlockGroupFlags, next: Place) -> Cursor {
        Cursor {
            flags,
            next,
            superblocks: (usize::MAX, Vec::new()),
        }
    }

    pub(super) fn next(&self) -> Place {
        self.next
    }

    /// Allocates the next place with up to `most` contiguous bytes. Returns None if no chunk has `least` bytes left.
    /// Both are multiples of the sector size.
    pub(super) fn take(
        &mut self,
        layout: &VolumeChunks,
        least: u64,
        most: u64,
    ) -> Option<(Place, u64)> {
        while let Some(chunk) = layout.chunks.get(self.next.chunk) {
            let place = self.next;
            let room = chunk.map.len_bytes().saturating_sub(place.offset);
            if !chunk.map.flags().contains(self.flags) || room < least {
                self.next = Place {
                    chunk: place.chunk + 1,
                    offset: 0,
                };
                continue;
            }
            if self.superblocks.0 != place.chunk {
                self.superblocks = (place.chunk, chunk.superblock_ranges());
            }
            let start = chunk.map.logical().0;
            let from = start + place.offset;
            let ahead = self.superblocks.1.iter().find(|range| range.end > from);
            let room = ahead.map_or(room, |range| range.start.saturating_sub(from).min(room));
            match ahead {
                // The end is a multiple of the stripe length, hence of the node size (NEWVOLUME-2).
                Some(range) if room < least => self.next.offset = range.end - start,
                _ => {
                    let len = room.min(most);
                    self.next.offset += len;
                    return Some((place, len));
                }
            }
        }
        None
    }
}

/// Allocates the addresses of tree blocks.
#[derive(Debug)]
pub(super) struct BlockPlaces<'a> {
    layout: &'a VolumeChunks,
    nodesize: u64,
    system: Cursor,
    metadata: Cursor,
}

impl<'a> BlockPlaces<'a> {
    /// Creates the allocator. `data_end` is the end of the data.
    pub(super) fn new(layout: &'a VolumeChunks, nodesize: u32, data_end: Place) -> BlockPlaces<'a> {
        let mixed = BlockGroupFlags::METADATA | BlockGroupFlags::DATA;
        let mut chunks = layout.chunks.iter();
        // In mixed groups, blocks follow the data. Otherwise they have chunks of their own.
        let start = if chunks.any(|chunk| chunk.map.flags().contains(mixed)) {
            data_end
        } else {
            Place::default()
        };
        BlockPlaces {
            layout,
            nodesize: u64::from(nodesize),
            system: Cursor::new(BlockGroupFlags::SYSTEM, Place::default()),
            metadata: Cursor::new(BlockGroupFlags::METADATA, start),
        }
    }

    /// Returns the address of the next block of a tree. The chunk tree is in system chunks.
    pub(super) fn next(&mut self, owner: RootId) -> Result<Logical, MkfsError> {
        let (cursor, flags) = match owner {
            RootId::CHUNK_TREE => (&mut self.system, BlockGroupFlags::SYSTEM),
            _ => (&mut self.metadata, BlockGroupFlags::METADATA),
        };
        let taken = cursor.take(self.layout, self.nodesize, self.nodesize);
        let (place, _) = taken.ok_or(MkfsError::NoRoomForBlock { flags })?;
        Ok(self.layout.logical(place))
    }
}

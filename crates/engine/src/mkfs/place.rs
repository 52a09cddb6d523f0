//! Addresses for tree blocks: the chunks of the right type from their start, superblocks left out.

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{Logical, RootId};

use super::chunks::ChunkLayout;
use super::error::MkfsError;

/// Hands out the addresses of one volume, each once.
#[derive(Debug)]
pub(super) struct BlockPlaces<'a> {
    layout: &'a ChunkLayout,
    nodesize: u64,
    system: Cursor,
    metadata: Cursor,
}

/// The next address that may be free.
#[derive(Debug)]
struct Cursor {
    flags: BlockGroupFlags,
    chunk: usize,
    offset: u64,
}

impl<'a> BlockPlaces<'a> {
    pub(super) fn new(layout: &'a ChunkLayout, nodesize: u32) -> BlockPlaces<'a> {
        let cursor = |flags| Cursor {
            flags,
            chunk: 0,
            offset: 0,
        };
        BlockPlaces {
            layout,
            nodesize: u64::from(nodesize),
            system: cursor(BlockGroupFlags::SYSTEM),
            metadata: cursor(BlockGroupFlags::METADATA),
        }
    }

    /// The address of the next block of a tree. The chunk tree lies in system chunks.
    pub(super) fn next(&mut self, owner: RootId) -> Result<Logical, MkfsError> {
        let cursor = match owner {
            RootId::CHUNK_TREE => &mut self.system,
            _ => &mut self.metadata,
        };
        cursor.next(self.layout, self.nodesize)
    }
}

impl Cursor {
    fn next(&mut self, layout: &ChunkLayout, nodesize: u64) -> Result<Logical, MkfsError> {
        let flags = self.flags;
        while let Some(chunk) = layout.chunks.get(self.chunk) {
            let room = chunk.map.len_bytes().saturating_sub(self.offset);
            if !chunk.map.flags().contains(flags) || room < nodesize {
                self.chunk += 1;
                self.offset = 0;
                continue;
            }
            let start = chunk.map.logical().0;
            let from = start + self.offset;
            let in_the_way = chunk
                .superblock_ranges()
                .into_iter()
                .find(|range| range.start < from + nodesize && from < range.end);
            match in_the_way {
                // The end is a multiple of the stripe length, hence of the node size (CHUNK-2).
                Some(range) => self.offset = range.end - start,
                None => {
                    self.offset += nodesize;
                    return Ok(Logical(from));
                }
            }
        }
        Err(MkfsError::NoRoomForBlock { flags })
    }
}

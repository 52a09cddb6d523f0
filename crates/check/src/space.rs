//! The chunks in address order, each with its block group and the space found in use.

use ubtrfs_format::block_group_flags::BlockGroupFlags;

/// The contents of a block group item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupItem {
    pub(crate) length: u64,
    pub(crate) used: u64,
    pub(crate) flags: BlockGroupFlags,
}

/// A fingerprint of a sequence of free ranges: count and hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeRuns {
    pub(crate) count: u64,
    hash: u64,
}

impl FreeRuns {
    /// Adds a run. Runs must be added in address order.
    pub(crate) fn add(&mut self, start: u64, length: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.count += 1;
        for word in [start, length] {
            self.hash = (self.hash ^ word).wrapping_mul(FACTOR);
            self.hash ^= self.hash >> 29;
        }
    }
}

/// A chunk and the space found in it.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) flags: BlockGroupFlags,
    pub(crate) group: Option<GroupItem>,
    /// Whether its block group may be in an unreadable block.
    pub(crate) is_group_lost: bool,
    /// Bytes of extents in the chunk.
    pub(crate) used: u64,
    /// The gaps between the extents.
    pub(crate) free: FreeRuns,
    /// The end of its last extent.
    filled: u64,
}

impl Space {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Returns whether the chunk has a block group, as far as known.
    pub(crate) fn may_have_group(&self) -> bool {
        self.group.is_some() || self.is_group_lost
    }
}

/// All chunks, without overlaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spaces {
    spaces: Vec<Space>,
}

impl Spaces {
    /// Adds a chunk. Chunks must be added in address order.
    pub(crate) fn push(&mut self, start: u64, length: u64, flags: BlockGroupFlags) {
        self.spaces.push(Space {
            start,
            length,
            flags,
            group: None,
            is_group_lost: false,
            used: 0,
            free: FreeRuns::default(),
            filled: start,
        });
    }

    pub(crate) fn all(&self) -> &[Space] {
        &self.spaces
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Space] {
        &mut self.spaces
    }

    pub(crate) fn index_of(&self, bytenr: u64) -> Option<usize> {
        let after = self.spaces.partition_point(|space| space.start <= bytenr);
        let index = after.checked_sub(1)?;
        (bytenr < self.spaces[index].end()).then_some(index)
    }

    pub(crate) fn find(&self, bytenr: u64) -> Option<&Space> {
        Some(&self.spaces[self.index_of(bytenr)?])
    }

    /// Adds an extent. Extents must be added in address order. Returns None if it is not within one chunk.
    pub(crate) fn fill(&mut self, bytenr: u64, length: u64) -> Option<&Space> {
        let index = self.index_of(bytenr)?;
        let space = &mut self.spaces[index];
        let end = bytenr.checked_add(length)?;
        if end > space.end() {
            return None;
        }
        if bytenr > space.filled {
            space.free.add(space.filled, bytenr - space.filled);
        }
        space.filled = space.filled.max(end);
        space.used = space.used.saturating_add(length);
        Some(space)
    }

    /// Adds the free space after the last extent of each chunk.
    pub(crate) fn finish(&mut self) {
        for space in &mut self.spaces {
            let end = space.end();
            if space.filled < end {
                space.free.add(space.filled, end - space.filled);
                space.filled = end;
            }
        }
    }
}

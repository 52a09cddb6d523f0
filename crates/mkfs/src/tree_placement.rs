//! Places the trees of a new volume, and builds them.
//!
//! Each round makes the items with the placement of the last round, measures the trees, and assigns all addresses
//! again. The iteration ends when the placement no longer changes. Only the block counts change, and they only grow:
//! an empty volume needs four rounds. Trees of files and of checksums do not describe blocks and are measured once.

use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_tree::{BlockFormat, Placement, TreeBlock, TreeShapes, WholeTrees, build_trees};

use super::chunks::VolumeChunks;
use super::error::MkfsError;
use super::files::{Files, Push};
use super::options::{Geometry, Identity};
use super::place::BlockPlaces;
use super::trees::{Contents, GENERATION};

const MAX_ROUNDS: usize = 32;

/// The final layout and placement.
#[derive(Debug)]
pub(super) struct PlacedTrees {
    pub(super) layout: VolumeChunks,
    pub(super) placement: Placement,
}

/// Returns a layout with room for this number of bytes of tree blocks, without the chunk tree.
pub(super) type Room<'a> = dyn FnMut(u64) -> Result<VolumeChunks, MkfsError> + 'a;

pub(super) fn place_trees(
    geometry: &Geometry,
    identity: &Identity,
    files: &dyn Files,
    room: &mut Room<'_>,
) -> Result<PlacedTrees, MkfsError> {
    let mut layout = room(0)?;
    let mut known = Placement::default();
    let mut shapes = TreeShapes::default();
    for _ in 0..MAX_ROUNDS {
        let contents = Contents {
            geometry,
            identity,
            layout: &layout,
            files,
        };
        shapes.measure(&contents, &known)?;
        let in_metadata = shapes
            .blocks()
            .filter(|(tree, _)| *tree != RootId::CHUNK_TREE);
        let blocks: usize = in_metadata.map(|(_, count)| count).sum();
        let next_layout = room(blocks as u64 * u64::from(geometry.nodesize))?;
        let mut places = BlockPlaces::new(&next_layout, geometry.nodesize, files.data_end());
        let placement = shapes.place(|tree| places.next(tree))?;
        // The items were made with this placement, so they are correct.
        if placement == known && next_layout == layout {
            return Ok(PlacedTrees { layout, placement });
        }
        known = placement;
        layout = next_layout;
    }
    Err(MkfsError::NotSettled { rounds: MAX_ROUNDS })
}

impl WholeTrees for Contents<'_> {
    type Error = MkfsError;

    fn block_format(&self) -> BlockFormat {
        BlockFormat {
            nodesize: self.geometry.nodesize as usize,
            fsid: self.identity.fsid,
            chunk_tree_uuid: self.identity.chunk_tree_uuid,
            generation: Transid(GENERATION),
        }
    }

    fn trees(&self) -> Vec<RootId> {
        self.tree_ids()
    }

    /// Returns whether a tree has only items of files or checksums. It may be large.
    fn is_independent(&self, tree: RootId) -> bool {
        self.is_of_files(tree)
    }

    fn each(&self, tree: RootId, known: &Placement, push: &mut Push<'_>) -> Result<(), MkfsError> {
        match tree {
            RootId::EXTENT_TREE => self.each_extent(known, push),
            RootId::CSUM_TREE => self.files.each_csum(push),
            _ if self.is_of_files(tree) => self.files.each_item(tree, push),
            _ => {
                let items = self.items(tree, known);
                let mut items = items.iter();
                items.try_for_each(|item| push(item.key, &item.data))
            }
        }
    }
}

impl Contents<'_> {
    /// Returns whether the tree does not describe blocks of other trees.
    fn is_of_files(&self, tree: RootId) -> bool {
        tree == RootId::CSUM_TREE || self.files.has_items() && tree.is_subvolume()
    }

    /// Builds every tree at its placement, and passes each sealed block to `emit`, in the order of the placement.
    pub(super) fn build(
        &self,
        placement: &Placement,
        emit: &mut dyn FnMut(TreeBlock) -> Result<(), MkfsError>,
    ) -> Result<(), MkfsError> {
        build_trees(self, placement, &mut |mut block| {
            self.geometry.csum_type.seal_block(&mut block.bytes);
            emit(block)
        })
    }
}

//! Finds places for all trees so that what they say of each other is true, then builds them.
//!
//! A round makes the items from what the last round knew and sees how many blocks of which level each tree comes
//! to. Then it hands out addresses afresh. The first round that finds what it was told ends it. The sizes of items
//! do not depend on addresses (BULK-4). So only counts of blocks move, and they only grow: an empty volume takes
//! four rounds. Trees of files and of checksums say nothing of blocks and are measured once.
//!
//! Invariants
//! - PLACEMENT-1: a tree's blocks have ascending addresses in the order in which they are made.

use std::collections::BTreeMap;
use std::rc::Rc;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_tree::{BlockFormat, BlockSink, BulkTree, TreeBlock, TreeRoot};

use super::chunks::VolumeChunks;
use super::error::MkfsError;
use super::files::{Files, Push};
use super::options::{Geometry, Identity};
use super::place::BlockPlaces;
use super::trees::{Contents, GENERATION, PlacedBlock, Placement};

const MAX_ROUNDS: usize = 32;

/// Where everything lies.
#[derive(Debug)]
pub(super) struct PlacedTrees {
    pub(super) layout: VolumeChunks,
    pub(super) placement: Placement,
}

/// Gives a layout with room for so many bytes of tree blocks, those of the chunk tree not counted.
pub(super) type Room<'a> = dyn FnMut(u64) -> Result<VolumeChunks, MkfsError> + 'a;

/// The blocks of a tree in the order in which they are made: level and first key.
type Shape = Vec<(u8, Key)>;

pub(super) fn place_trees(
    geometry: &Geometry,
    identity: &Identity,
    files: &dyn Files,
    room: &mut Room<'_>,
) -> Result<PlacedTrees, MkfsError> {
    let mut layout = room(0)?;
    let mut known = Placement::default();
    let mut measured: BTreeMap<RootId, Rc<Shape>> = BTreeMap::new();
    for _ in 0..MAX_ROUNDS {
        let contents = Contents {
            geometry,
            identity,
            layout: &layout,
            files,
        };
        let mut shapes = Vec::new();
        for tree in contents.trees() {
            let shape = match measured.get(&tree) {
                Some(shape) => Rc::clone(shape),
                None => Rc::new(shape(&contents, tree, &known)?),
            };
            if contents.is_of_files(tree) {
                measured.insert(tree, Rc::clone(&shape));
            }
            shapes.push((tree, shape));
        }
        let in_metadata = shapes
            .iter()
            .filter(|(tree, _)| *tree != RootId::CHUNK_TREE);
        let blocks: usize = in_metadata.map(|(_, shape)| shape.len()).sum();
        let next_layout = room(blocks as u64 * u64::from(geometry.nodesize))?;
        let placement = place(geometry, files, &next_layout, &shapes)?;
        if placement == known && next_layout == layout {
            return Ok(PlacedTrees { layout, placement });
        }
        known = placement;
        layout = next_layout;
    }
    Err(MkfsError::NotSettled { rounds: MAX_ROUNDS })
}

fn place(
    geometry: &Geometry,
    files: &dyn Files,
    layout: &VolumeChunks,
    shapes: &[(RootId, Rc<Shape>)],
) -> Result<Placement, MkfsError> {
    let mut placement = Placement::default();
    let mut places = BlockPlaces::new(layout, geometry.nodesize, files.data_end());
    for (owner, shape) in shapes {
        let owner = *owner;
        let mut first = None;
        let mut root = TreeRoot::default();
        for &(level, first_key) in shape.iter() {
            let logical = places.next(owner)?;
            first.get_or_insert(logical);
            root = TreeRoot { logical, level };
            let block = PlacedBlock {
                owner,
                level,
                first_key,
            };
            placement.blocks.insert(logical, block);
        }
        let extent = (first.unwrap_or_default(), shape.len() as u64);
        placement.extents.insert(owner, extent);
        placement.roots.insert(owner, root);
    }
    Ok(placement)
}

impl Contents<'_> {
    /// Returns whether the tree says nothing of other trees' blocks and may be large.
    fn is_of_files(&self, tree: RootId) -> bool {
        tree == RootId::CSUM_TREE || self.files.has_items() && tree.is_subvolume()
    }

    /// Pushes all items of a tree in key order.
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

    fn block_format(&self) -> BlockFormat {
        BlockFormat {
            nodesize: self.geometry.nodesize as usize,
            fsid: self.identity.fsid,
            chunk_tree_uuid: self.identity.chunk_tree_uuid,
            generation: Transid(GENERATION),
        }
    }

    /// Builds every tree at its places, and seals and hands out each block: trees and their blocks in the
    /// order in which they were placed.
    pub(super) fn build(
        &self,
        placement: &Placement,
        emit: &mut dyn FnMut(TreeBlock) -> Result<(), MkfsError>,
    ) -> Result<(), MkfsError> {
        let format = self.block_format();
        for tree in self.trees() {
            let mut sink = Placed {
                addresses: placement.addresses(tree),
                seal: |mut block: TreeBlock| {
                    self.geometry.csum_type.seal_block(&mut block.bytes);
                    emit(block)
                },
            };
            let mut bulk = BulkTree::new(&format, tree, &mut sink);
            self.each(tree, placement, &mut |key, data| bulk.push(key, data))?;
            let root = bulk.finish()?;
            assert_eq!(
                (root, sink.addresses.next()),
                (placement.root(tree), None),
                "trees have the shape they were measured to have"
            );
        }
        Ok(())
    }
}

fn shape(contents: &Contents<'_>, tree: RootId, known: &Placement) -> Result<Shape, MkfsError> {
    let format = contents.block_format();
    let mut measure = Measure::default();
    let mut bulk = BulkTree::new(&format, tree, &mut measure);
    contents.each(tree, known, &mut |key, data| bulk.push(key, data))?;
    bulk.finish()?;
    Ok(measure.shape)
}

/// Notes which blocks there are, and drops them.
#[derive(Default)]
struct Measure {
    shape: Shape,
}

impl BlockSink for Measure {
    type Error = MkfsError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, MkfsError> {
        Ok(Logical::default())
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), MkfsError> {
        self.shape.push((block.level, block.first_key));
        Ok(())
    }
}

/// Hands out places that were placed.
struct Placed<A, S> {
    addresses: A,
    seal: S,
}

impl<A, S> BlockSink for Placed<A, S>
where
    A: Iterator<Item = Logical>,
    S: FnMut(TreeBlock) -> Result<(), MkfsError>,
{
    type Error = MkfsError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, MkfsError> {
        Ok(self.addresses.next().expect("measured before it is built"))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), MkfsError> {
        (self.seal)(block)
    }
}

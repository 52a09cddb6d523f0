//! Places the trees, which describe each other, and builds them.
//!
//! A round makes the items with the placement of the last round, and counts the blocks of each tree by level. Then it
//! assigns all addresses again. The iteration ends when the placement no longer changes. The sizes of items do not
//! depend on addresses (BULK-4). So only the block counts change, and they only grow: an empty volume needs four
//! rounds. Trees of files and of checksums do not describe blocks and are measured once.
//!
//! Invariants
//! - PLACEMENT-1: a tree's blocks have ascending addresses in the order in which they are built.

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

/// The final layout and placement.
#[derive(Debug)]
pub(super) struct PlacedTrees {
    pub(super) layout: VolumeChunks,
    pub(super) placement: Placement,
}

/// Returns a layout with room for this number of bytes of tree blocks, without the chunk tree.
pub(super) type Room<'a> = dyn FnMut(u64) -> Result<VolumeChunks, MkfsError> + 'a;

/// The level and first key of a tree's blocks, in the order in which they are built.
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
            // Independent of the placement, so one measurement is enough.
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
        // The items were made with this placement, so they are correct.
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
    /// Returns whether the tree does not describe blocks of other trees. Such trees may be large.
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

    /// Builds every tree at its placement, and passes each sealed block to `emit`, in the order of the placement.
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

/// Records the shape of a tree, and drops its blocks.
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

/// Returns addresses from the placement.
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

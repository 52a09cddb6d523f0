//! Whole trees that describe each other, such as an extent tree that lists its own blocks.
//!
//! The trees are measured first, with the placement known so far. Then all blocks get addresses, and the trees are
//! built. Items contain addresses, but their sizes do not depend on them (BULK-4). So a caller measures and places in
//! rounds until the placement no longer changes: then the trees describe each other.
//!
//! Invariants
//! - PLACEMENT-1: the addresses of a tree's blocks ascend in the order of their creation.
//!
//! Not here: the items, the choice of free addresses, and checksums; these are up to the caller.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;

use crate::build::{BlockFormat, BlockSink, BuildError, TreeBlock};
use crate::bulk::{BulkTree, TreeRoot};

#[cfg(test)]
mod tests;

/// The properties of a tree block that other trees record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    pub owner: RootId,
    pub level: u8,
    pub first_key: Key,
}

/// The addresses of all tree blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    roots: BTreeMap<RootId, TreeRoot>,
    blocks: BTreeMap<Logical, PlacedBlock>,
    /// The first block of each tree, and the number of its blocks.
    extents: BTreeMap<RootId, (Logical, u64)>,
}

impl Placement {
    pub fn root(&self, tree: RootId) -> TreeRoot {
        self.roots.get(&tree).copied().unwrap_or_default()
    }

    /// Returns all blocks, ascending.
    pub fn blocks(&self) -> &BTreeMap<Logical, PlacedBlock> {
        &self.blocks
    }

    /// Returns the addresses of the blocks in a range, ascending.
    pub fn blocks_in(&self, range: Range<Logical>) -> impl Iterator<Item = Logical> {
        self.blocks.range(range).map(|(&logical, _)| logical)
    }

    /// Returns the number of a tree's blocks.
    pub fn blocks_of(&self, tree: RootId) -> u64 {
        self.extents.get(&tree).map_or(0, |&(_, count)| count)
    }

    /// Returns the addresses of a tree's blocks, ascending.
    pub fn addresses(&self, tree: RootId) -> impl Iterator<Item = Logical> {
        let (first, count) = self.extents.get(&tree).copied().unwrap_or_default();
        // PLACEMENT-1
        let blocks = self.blocks.range(first..);
        let own = blocks.filter(move |(_, block)| block.owner == tree);
        own.map(|(&logical, _)| logical).take(count as usize)
    }
}

/// A consumer of items in key order.
pub type PushItem<'p, E> = dyn FnMut(Key, &[u8]) -> Result<(), E> + 'p;

/// The trees to build, and their items.
pub trait WholeTrees {
    type Error: From<BuildError>;

    fn block_format(&self) -> BlockFormat;

    /// Returns the trees in the order of their placement.
    fn trees(&self) -> Vec<RootId>;

    /// Returns whether the items of a tree do not depend on the placement. Such a tree is measured once.
    fn is_independent(&self, tree: RootId) -> bool;

    /// Pushes all items of a tree in key order, as they are with the placement `known`.
    fn each(
        &self,
        tree: RootId,
        known: &Placement,
        push: &mut PushItem<'_, Self::Error>,
    ) -> Result<(), Self::Error>;
}

/// The level and first key of a tree's blocks, in the order of their creation.
type Shape = Vec<(u8, Key)>;

/// The sizes of trees, measured by building them without storing the blocks.
#[derive(Debug, Default)]
pub struct TreeShapes {
    shapes: Vec<(RootId, Rc<Shape>)>,
    independent: BTreeMap<RootId, Rc<Shape>>,
}

impl TreeShapes {
    /// Measures all trees, except for independent ones that were measured before.
    pub fn measure<T: WholeTrees>(&mut self, trees: &T, known: &Placement) -> Result<(), T::Error> {
        self.shapes.clear();
        for tree in trees.trees() {
            let shape = match self.independent.get(&tree) {
                Some(shape) => Rc::clone(shape),
                None => Rc::new(measure_tree(trees, tree, known)?),
            };
            if trees.is_independent(tree) {
                self.independent.insert(tree, Rc::clone(&shape));
            }
            self.shapes.push((tree, shape));
        }
        Ok(())
    }

    /// Returns each tree with the number of its blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (RootId, usize)> {
        self.shapes.iter().map(|(tree, shape)| (*tree, shape.len()))
    }

    /// Gives each block an address from `next`, which must ascend for the blocks of one tree.
    pub fn place<E>(
        &self,
        mut next: impl FnMut(RootId) -> Result<Logical, E>,
    ) -> Result<Placement, E> {
        let mut placement = Placement::default();
        for (owner, shape) in &self.shapes {
            let owner = *owner;
            let mut first = None;
            let mut root = TreeRoot::default();
            for &(level, first_key) in shape.iter() {
                let logical = next(owner)?;
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
}

/// Builds every tree at its placement, and passes each block to `emit`, in the order of the placement.
///
/// # Panics
/// If a tree has another shape than in `placement`.
pub fn build_trees<T: WholeTrees>(
    trees: &T,
    placement: &Placement,
    emit: &mut dyn FnMut(TreeBlock) -> Result<(), T::Error>,
) -> Result<(), T::Error> {
    let format = trees.block_format();
    for tree in trees.trees() {
        let mut sink = Placed {
            addresses: placement.addresses(tree),
            emit: &mut *emit,
        };
        let mut bulk = BulkTree::new(&format, tree, &mut sink);
        trees.each(tree, placement, &mut |key, data| bulk.push(key, data))?;
        let root = bulk.finish()?;
        assert_eq!(
            (root, sink.addresses.next()),
            (placement.root(tree), None),
            "trees have the shape they were measured to have"
        );
    }
    Ok(())
}

fn measure_tree<T: WholeTrees>(
    trees: &T,
    tree: RootId,
    known: &Placement,
) -> Result<Shape, T::Error> {
    let format = trees.block_format();
    let mut measure = Measure {
        shape: Shape::new(),
        error: PhantomData::<T::Error>,
    };
    let mut bulk = BulkTree::new(&format, tree, &mut measure);
    trees.each(tree, known, &mut |key, data| bulk.push(key, data))?;
    bulk.finish()?;
    Ok(measure.shape)
}

/// Records the shape of a tree, and drops its blocks.
struct Measure<E> {
    shape: Shape,
    error: PhantomData<E>,
}

impl<E: From<BuildError>> BlockSink for Measure<E> {
    type Error = E;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, E> {
        Ok(Logical::default())
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), E> {
        self.shape.push((block.level, block.first_key));
        Ok(())
    }
}

/// Takes addresses from the placement.
struct Placed<'e, A, E> {
    addresses: A,
    emit: &'e mut dyn FnMut(TreeBlock) -> Result<(), E>,
}

impl<A, E> BlockSink for Placed<'_, A, E>
where
    A: Iterator<Item = Logical>,
    E: From<BuildError>,
{
    type Error = E;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, E> {
        Ok(self.addresses.next().expect("measured before it is built"))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), E> {
        (self.emit)(block)
    }
}

//! Builds all trees until what they say of each other is true.
//!
//! A round makes the items from what the last round knew, builds the trees at fresh addresses, and notes
//! where everything came to lie. The first round that finds what it was told ends it. As the sizes of
//! items do not depend on addresses (BULK-4), only counts of blocks move, and they only grow: an empty
//! volume takes four rounds.

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_tree::{BlockFormat, BlockSink, BulkTree, TreeBlock};

use super::error::MkfsError;
use super::place::BlockPlaces;
use super::trees::{Contents, GENERATION, PlacedBlock, Placement};

const MAX_ROUNDS: usize = 32;

/// All blocks, and where the trees among them begin.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) placement: Placement,
    pub(super) blocks: Vec<TreeBlock>,
}

pub(super) fn settle(contents: &Contents<'_>) -> Result<Settled, MkfsError> {
    let mut known = Placement::default();
    for _ in 0..MAX_ROUNDS {
        let built = build(contents, &known)?;
        if built.placement == known {
            return Ok(built);
        }
        known = built.placement;
    }
    Err(MkfsError::NotSettled { rounds: MAX_ROUNDS })
}

/// One round.
fn build(contents: &Contents<'_>, known: &Placement) -> Result<Settled, MkfsError> {
    let geometry = contents.geometry;
    let format = BlockFormat {
        nodesize: geometry.nodesize as usize,
        fsid: contents.identity.fsid,
        chunk_tree_uuid: contents.identity.chunk_tree_uuid,
        generation: Transid(GENERATION),
    };
    let mut round = Round {
        places: BlockPlaces::new(contents.layout, geometry.nodesize),
        owner: RootId::default(),
        csum_type: geometry.csum_type,
        built: Settled {
            placement: Placement::default(),
            blocks: Vec::new(),
        },
    };
    for owner in contents.trees() {
        round.owner = owner;
        let mut tree = BulkTree::new(&format, owner, &mut round);
        for item in contents.items(owner, known) {
            tree.push(item.key, &item.data)?;
        }
        let root = tree.finish()?;
        round.built.placement.roots.insert(owner, root);
    }
    Ok(round.built)
}

struct Round<'a> {
    places: BlockPlaces<'a>,
    owner: RootId,
    csum_type: CsumType,
    built: Settled,
}

impl BlockSink for Round<'_> {
    type Error = MkfsError;

    fn place(&mut self, _level: u8) -> Result<Logical, MkfsError> {
        self.places.next(self.owner)
    }

    fn emit(&mut self, mut block: TreeBlock) -> Result<(), MkfsError> {
        self.csum_type.seal_block(&mut block.bytes);
        let placed = PlacedBlock {
            owner: block.owner,
            level: block.level,
            first_key: block.first_key,
        };
        self.built.placement.blocks.insert(block.logical, placed);
        self.built.blocks.push(block);
        Ok(())
    }
}

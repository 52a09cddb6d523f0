//! The check of a whole tree block: what a block must satisfy before anything else looks into it.
//!
//! It runs on every block that is read from a device and on every block before it is written. It is as strict as
//! the kernel's tree checker, so a block which passes here passes there. Code behind it may rely on the order and
//! bounds of items and on the ranges of their fields.
//!
//! Invariants
//! - CHECK-1: no input panics or allocates, and the time is linear in the block's size.
//! - CHECK-2: a block that passed has items packed from its end without gap or overlap, and keys ascend
//!   strictly.
//! - CHECK-3: one defect, one variant; the first defect found in slot order is reported.
//!
//! Not here: what needs more than one block (reference counts, missing items): that is the checker of whole
//! volumes. Choosing another mirror: `device`.

mod error;
mod header;
mod item;
mod leaf;
mod node;

pub use crate::chunk_check::{CorruptChunk, check_chunk};
pub use error::{CorruptBlock, CorruptItem};
pub use item::{
    CorruptBlockGroup, CorruptCsumItem, CorruptDev, CorruptDirItem, CorruptExtent,
    CorruptExtentRef, CorruptFileExtent, CorruptFreeSpace, CorruptInode, CorruptName,
    CorruptRaidStripe, CorruptRoot, ExtentField, RootGeneration,
};

use crate::csum::CsumType;
use crate::features::{CompatRo, Incompat};
use crate::ids::{Logical, RootId, Transid};
use crate::key::Key;
use crate::node::Node;
use crate::superblock::{Superblock, flags};
use crate::uuid::Uuid;

/// The properties of the volume that the check of a block needs.
#[derive(Clone, Copy, Debug)]
pub struct BlockContext<'a> {
    pub sectorsize: u32,
    pub nodesize: u32,
    pub csum_type: CsumType,
    /// The fsid that headers carry ([`Superblock::metadata_fsid`]).
    pub fsid: &'a Uuid,
    /// The fsids of the seed volumes below a sprouted one; their blocks keep them.
    pub seed_fsids: &'a [Uuid],
    /// The chunk tree that headers name; None: not compared, as in the kernel.
    pub chunk_tree_uuid: Option<&'a Uuid>,
    pub incompat: Incompat,
    pub compat_ro: CompatRo,
    /// The superblock's generation. Log trees and blocks of the running transaction are one above.
    pub generation: Transid,
    /// Names were replaced by an anonymizing metadata dump and do not match their hashes.
    pub scrambled_names: bool,
}

impl<'a> BlockContext<'a> {
    /// Creates the context of a validated superblock's volume.
    pub fn new(superblock: &'a Superblock) -> BlockContext<'a> {
        let metadump = flags::METADUMP | flags::METADUMP_V2;
        BlockContext {
            sectorsize: superblock.sectorsize.get(),
            nodesize: superblock.nodesize.get(),
            csum_type: superblock.csum_type(),
            fsid: superblock.metadata_fsid(),
            seed_fsids: &[],
            chunk_tree_uuid: None,
            incompat: superblock.incompat(),
            compat_ro: superblock.compat_ro(),
            generation: superblock.transid(),
            scrambled_names: superblock.flags.get() & metadump != 0,
        }
    }

    /// Returns the highest generation that anything on disk may carry.
    fn max_generation(&self) -> u64 {
        self.generation.0.saturating_add(1)
    }

    /// Returns whether a number is a multiple of the sectorsize. It uses a mask: the sectorsize is a power of two, and
    /// this runs several times an item.
    fn is_sector_aligned(&self, number: u64) -> bool {
        number & u64::from(self.sectorsize).saturating_sub(1) == 0
    }
}

/// The properties of a block that the pointer to it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    pub bytenr: Logical,
    pub level: Option<u8>,
    /// The generation beside the pointer.
    pub generation: Option<Transid>,
    /// The tree being walked; subvolumes share blocks, so that any subvolume does for another.
    pub owner: Option<RootId>,
    pub first_key: Option<Key>,
}

impl Expect {
    /// Expects a block of which only the place is known.
    pub fn at(bytenr: Logical) -> Expect {
        Expect {
            bytenr,
            level: None,
            generation: None,
            owner: None,
            first_key: None,
        }
    }
}

/// Checks a block as read from a device or as about to be written: checksum, header, then every slot.
pub fn check_block(
    block: &[u8],
    context: &BlockContext<'_>,
    expect: &Expect,
) -> Result<(), CorruptBlock> {
    if block.len() != context.nodesize as usize {
        return Err(CorruptBlock::Size {
            wanted: context.nodesize,
            found: block.len(),
        });
    }
    let Some(node) = Node::new(block) else {
        return Err(CorruptBlock::Size {
            wanted: context.nodesize,
            found: block.len(),
        });
    };
    header::check_place(node, context, expect)?;
    context.csum_type.verify_block(block)?;
    header::check_header(node, context, expect)?;
    check_content(node, context)?;
    header::check_first_key(node, expect)
}

/// Checks the slots of a leaf or an interior node, without its checksum and place.
pub fn check_content(node: Node<'_>, context: &BlockContext<'_>) -> Result<(), CorruptBlock> {
    if node.is_leaf() {
        leaf::check_leaf(node, context)
    } else {
        node::check_node(node, context)
    }
}

/// Compares a block that passed [`check_block`] earlier with another pointer to it.
pub fn check_expected(
    node: Node<'_>,
    context: &BlockContext<'_>,
    expect: &Expect,
) -> Result<(), CorruptBlock> {
    header::check_place(node, context, expect)?;
    header::check_header(node, context, expect)?;
    header::check_first_key(node, expect)
}

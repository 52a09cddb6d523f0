//! The check of a whole tree block, which every block must pass before any other use.
//!
//! It runs on every block read from a device and on every block to be written. It is as strict as the kernel's tree
//! checker, so that the kernel accepts every block that passes here. The marks of makers (`maker`) are an exception, which
//! writers refuse. Later code may rely on the order and bounds of
//! items and on the ranges of their fields.
//!
//! Invariants
//! - CHECK-1: no input panics or allocates, and the time is linear in the block's size.
//! - CHECK-2: a block that has passed has items packed from its end without gaps or overlaps, and keys that ascend
//!   strictly.
//! - CHECK-3: each defect has one variant; the first defect in slot order is reported.
//!
//! Not here: checks across blocks (reference counts, missing items), which are in the checker of whole volumes.
//! Choosing another mirror: `device`. Reading the items of a damaged leaf: `lenient`.

mod error;
mod header;
mod item;
mod leaf;
mod lenient;
mod node;

pub use crate::chunk_check::{CorruptChunk, check_chunk};
pub use error::CorruptBlock;
pub use item::{
    CorruptBlockGroup, CorruptCsumItem, CorruptDev, CorruptDirItem, CorruptExtent,
    CorruptExtentRef, CorruptFileExtent, CorruptFreeSpace, CorruptInode, CorruptItem, CorruptName,
    CorruptRaidStripe, CorruptRoot, ExtentField, RootGeneration,
};
pub use lenient::{LenientItem, lenient_items};

use crate::csum::CsumType;
use crate::features::{CompatRo, Incompat};
use crate::ids::{Logical, RootId, Transid};
use crate::key::Key;
use crate::node::Node;
use crate::superblock::{Superblock, flags};
use crate::uuid::Uuid;

/// The properties of a volume that the check needs.
#[derive(Clone, Copy, Debug)]
pub struct BlockContext<'a> {
    pub sectorsize: u32,
    pub nodesize: u32,
    pub csum_type: CsumType,
    /// The fsid in block headers ([`Superblock::metadata_fsid`]).
    pub fsid: &'a Uuid,
    /// The fsids of the seed volumes of a sprouted volume; blocks of the seeds keep them.
    pub seed_fsids: &'a [Uuid],
    /// The chunk tree uuid in headers. None skips the comparison, as in the kernel.
    pub chunk_tree_uuid: Option<&'a Uuid>,
    pub incompat: Incompat,
    pub compat_ro: CompatRo,
    /// The superblock's generation. Log trees and blocks of the running transaction are one above.
    pub generation: Transid,
    /// Whether an anonymizing metadata dump has replaced names, so that they do not match their hashes.
    pub scrambled_names: bool,
    /// Whether unknown flags of root items and inodes are accepted.
    pub ignore_flags: bool,
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
            ignore_flags: false,
        }
    }

    /// Returns the highest generation that is valid on disk.
    fn max_generation(&self) -> u64 {
        self.generation.0.saturating_add(1)
    }

    /// Returns whether a number is a multiple of the sector size. It uses a mask for speed: the sector size is a
    /// power of two, and this runs several times per item.
    fn is_sector_aligned(&self, number: u64) -> bool {
        number & u64::from(self.sectorsize).saturating_sub(1) == 0
    }
}

/// The expected properties of a block, from the pointer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    pub bytenr: Logical,
    pub level: Option<u8>,
    /// The generation in the pointer.
    pub generation: Option<Transid>,
    /// The tree being walked. Any subvolume matches any other, because they share blocks.
    pub owner: Option<RootId>,
    pub first_key: Option<Key>,
}

impl Expect {
    /// Expects only the address.
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

/// Checks a block after reading or before writing: checksum, header, then every slot.
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

/// Checks the slots of a leaf or an interior node, without checksum and address.
pub fn check_content(node: Node<'_>, context: &BlockContext<'_>) -> Result<(), CorruptBlock> {
    if node.is_leaf() {
        leaf::check_leaf(node, context)
    } else {
        node::check_node(node, context)
    }
}

/// Compares a block that has passed [`check_block`] with another pointer to it.
pub fn check_expected(
    node: Node<'_>,
    context: &BlockContext<'_>,
    expect: &Expect,
) -> Result<(), CorruptBlock> {
    header::check_place(node, context, expect)?;
    header::check_header(node, context, expect)?;
    header::check_first_key(node, expect)
}

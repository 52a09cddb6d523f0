//! The extent tree: sizes, addresses and reference counts; and its statements about blocks and data.
//!
//! The items of one extent are adjacent: the extent item, then the references that did not fit into it.
//!
//! Not here: whether the references are correct (`references`), free space (`free_space`).

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{
    ExtentDataRef, ExtentFlags, InlineRef, STRIPE_LEN, SharedDataRef, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use crate::error::CheckError;
use crate::facts::{Fact, Side};
use crate::fault::Fault;
use crate::issue::Place;
use crate::space::Spaces;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::walk::{Lost, Visited, Visitor};

/// The extent whose items are being read.
#[derive(Debug)]
struct Extent {
    bytenr: u64,
    length: u64,
    key: Key,
    is_block: bool,
    is_full: bool,
    /// The count in the extent item.
    refs: u64,
    /// The sum of the references.
    counted: u64,
    /// A tree that the references name as root, for blocks.
    root: Option<u64>,
}

pub(crate) struct ExtentReader<'s, 'a> {
    pub(crate) state: &'s mut State<'a>,
    /// None in the second pass, because the first pass has counted the space.
    spaces: Option<&'s mut Spaces>,
    nodesize: u64,
    current: Option<Extent>,
    /// The end of the last extent.
    end: u64,
    /// References without an item were already reported for this extent.
    headless: Option<u64>,
    /// The previous extent or its references may have been lost.
    after_loss: bool,
}

impl<'s, 'a> ExtentReader<'s, 'a> {
    pub(crate) fn new(
        state: &'s mut State<'a>,
        spaces: Option<&'s mut Spaces>,
        nodesize: usize,
    ) -> Self {
        ExtentReader {
            state,
            spaces,
            nodesize: nodesize as u64,
            current: None,
            end: 0,
            headless: None,
            after_loss: false,
        }
    }
}

impl Visitor for ExtentReader<'_, '_> {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.state.enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        self.state.enter_block(root, block)?;
        for (key, bytes) in block.node.items() {
            self.item(key, bytes)?;
        }
        if !block.node.is_empty() && block.node.is_leaf() {
            self.after_loss = false;
        }
        Ok(())
    }

    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        // Its last references may be lost, so that the sum is meaningless.
        self.current = None;
        self.after_loss = true;
        self.state.lose(lost);
        Ok(())
    }

    fn end(&mut self, _: &TreeRoot) -> Result<(), CheckError> {
        self.finish_extent();
        if let Some(spaces) = &mut self.spaces {
            spaces.finish();
        }
        Ok(())
    }
}

impl ExtentReader<'_, '_> {
    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        match key.item_type {
            KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => {
                self.finish_extent();
                self.begin_extent(key, bytes)
            }
            KeyType::TREE_BLOCK_REF => {
                let root = key.offset;
                self.keyed(key, InlineRef::TreeBlock { root })
            }
            KeyType::SHARED_BLOCK_REF => {
                let parent = key.offset;
                self.keyed(key, InlineRef::SharedBlock { parent })
            }
            KeyType::SHARED_DATA_REF => {
                let count = SharedDataRef::ref_from_bytes(bytes).map_or(0, |r| r.count.get());
                let parent = key.offset;
                self.keyed(key, InlineRef::SharedData { parent, count })
            }
            KeyType::EXTENT_DATA_REF => {
                let refs = <[ExtentDataRef]>::ref_from_bytes(bytes).unwrap_or_default();
                for data in refs {
                    self.keyed(key, InlineRef::ExtentData(*data))?;
                }
                Ok(())
            }
            KeyType::BLOCK_GROUP_ITEM => {
                self.block_group(key);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, at: Place, fault: Fault) {
        if !self.state.is_second_pass() {
            self.state.add(at, fault);
        }
    }

    /// Checks a block group. Groups that match a chunk were already found by searching.
    fn block_group(&mut self, key: Key) {
        let Some(spaces) = &self.spaces else { return };
        let at = Place::item(RootId::EXTENT_TREE, key).at(key.objectid);
        match spaces.find(key.objectid) {
            Some(space) if space.may_have_group() => {
                let other = space.start;
                if other != key.objectid {
                    self.state.add(at, Fault::BlockGroupOverlap { other });
                }
            }
            _ => {
                let lost = self.state.has_lost(RootId::CHUNK_TREE);
                let length = key.offset;
                let fault = Fault::BlockGroupWithoutChunk { length };
                self.state.add_unless(lost, at, fault);
            }
        }
    }

    fn begin_extent(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        let Some(decoded) = decode_extent(key.item_type, bytes) else {
            return Ok(());
        };
        let flags = decoded.head.flags();
        let is_block = flags.contains(ExtentFlags::TREE_BLOCK);
        let is_skinny = key.item_type == KeyType::METADATA_ITEM;
        let level = match decoded.tree_block {
            Some(info) => info.level,
            None if is_skinny => key.offset as u8,
            None => 0,
        };
        let extent = Extent {
            bytenr: key.objectid,
            length: if is_skinny { self.nodesize } else { key.offset },
            key,
            is_block,
            is_full: flags.contains(ExtentFlags::FULL_BACKREF),
            refs: decoded.head.refs.get(),
            counted: 0,
            root: None,
        };
        self.place(&extent);
        if extent.is_full {
            self.state.full_backrefs.insert(extent.bytenr);
        }
        let fact = if is_block {
            Fact::Block {
                level,
                generation: decoded.head.generation.get(),
            }
        } else {
            Fact::Data
        };
        let length = if is_block { 0 } else { extent.length };
        self.state
            .facts
            .add(Side::ExtentTree, extent.bytenr, length, fact, 1)?;
        self.current = Some(extent);
        for reference in decoded.refs {
            self.reference(key, reference)?;
        }
        Ok(())
    }

    /// Checks the address range of the extent.
    fn place(&mut self, extent: &Extent) {
        let at = Place::item(RootId::EXTENT_TREE, extent.key).at(extent.bytenr);
        let last = extent
            .bytenr
            .saturating_add(extent.length.saturating_sub(1));
        if extent.is_block && extent.bytenr / STRIPE_LEN != last / STRIPE_LEN {
            self.add(at, Fault::BlockCrossesStripe {});
        }
        if extent.bytenr < self.end {
            let before_end = self.end;
            self.add(at, Fault::ExtentOverlap { before_end });
        }
        self.end = self.end.max(extent.bytenr.saturating_add(extent.length));
        let Some(spaces) = &mut self.spaces else {
            return;
        };
        self.state.report.figures.bytes_used = self
            .state
            .report
            .figures
            .bytes_used
            .saturating_add(extent.length);
        let Some(space) = spaces.fill(extent.bytenr, extent.length) else {
            let lost = self.state.has_lost(RootId::CHUNK_TREE);
            let length = extent.length;
            let fault = Fault::ExtentOutsideChunk { length };
            self.state.add_unless(lost, at, fault);
            return;
        };
        let wanted = if extent.is_block {
            BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM
        } else {
            BlockGroupFlags::DATA
        };
        if !space.flags.intersects(wanted) {
            let flags = space.flags.bits();
            self.add(at, Fault::ExtentChunkType { flags });
        }
    }

    /// Adds a reference that is a separate item.
    fn keyed(&mut self, key: Key, reference: InlineRef) -> Result<(), CheckError> {
        let belongs = self
            .current
            .as_ref()
            .is_some_and(|extent| extent.bytenr == key.objectid);
        if belongs {
            return self.reference(key, reference);
        }
        self.finish_extent();
        if self.headless != Some(key.objectid) && !self.after_loss {
            self.headless = Some(key.objectid);
            let at = Place::item(RootId::EXTENT_TREE, key).at(key.objectid);
            self.add(at, Fault::RefWithoutExtent {});
        }
        Ok(())
    }

    fn reference(&mut self, key: Key, reference: InlineRef) -> Result<(), CheckError> {
        let Some(extent) = &mut self.current else {
            return Ok(());
        };
        let count = reference.count();
        extent.counted = extent.counted.saturating_add(count);
        let (of_block, fact) = match reference {
            InlineRef::TreeBlock { root } => {
                extent.root = Some(root);
                (true, Fact::TreeRef { root })
            }
            InlineRef::SharedBlock { parent } => (true, Fact::SharedBlockRef { parent }),
            InlineRef::ExtentData(data) => {
                let fact = Fact::DataRef {
                    root: data.root.get(),
                    inode: data.objectid.get(),
                    offset: data.offset.get(),
                };
                (false, fact)
            }
            InlineRef::SharedData { parent, .. } => (false, Fact::SharedDataRef { parent }),
            InlineRef::Owner { .. } => return Ok(()),
        };
        let (bytenr, is_block) = (extent.bytenr, extent.is_block);
        let length = if is_block { 0 } else { extent.length };
        if of_block != is_block {
            let at = Place::item(RootId::EXTENT_TREE, key).at(bytenr);
            self.add(at, Fault::ExtentRefKind {});
            return Ok(());
        }
        self.state
            .facts
            .add(Side::ExtentTree, bytenr, length, fact, count)
    }

    fn finish_extent(&mut self) {
        let Some(extent) = self.current.take() else {
            return;
        };
        if self.state.is_second_pass() {
            return;
        }
        let at = Place::item(RootId::EXTENT_TREE, extent.key).at(extent.bytenr);
        if extent.counted != extent.refs {
            let fault = Fault::ExtentRefs {
                recorded: extent.refs,
                found: extent.counted,
            };
            self.state.add(at, fault);
        }
        // A data extent without references appears in no other comparison. A block does.
        if !extent.is_block && extent.counted == 0 {
            let length = extent.length;
            self.state.add(at, Fault::DataExtentUnused { length });
        }
        if !extent.is_block {
            return;
        }
        let chunk_tree = RootId::CHUNK_TREE.0;
        if let (Some(root), Some(spaces)) = (extent.root, &self.spaces)
            && let Some(space) = spaces.find(extent.bytenr)
            && space.flags.contains(BlockGroupFlags::SYSTEM) != (root == chunk_tree)
            && !space.flags.contains(BlockGroupFlags::DATA)
        {
            let flags = space.flags.bits();
            self.state.add(at, Fault::ExtentChunkType { flags });
        }
        if let Some(root) = extent.root
            && extent.is_full
            && !RootId(root).holds_files()
            && RootId(root) != RootId::TREE_RELOC
        {
            self.state.add(at, Fault::FullBackrefUnshared { root });
        }
    }
}

//! The state of a running check.

use std::collections::{BTreeSet, HashMap};

use ubtrfs_device::progress::{Event, PhaseProgress, Progress, Watch};
use ubtrfs_device::{AttemptProblem, DeviceError};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::maker::{Marks, is_makers_tree};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, header_flags, leaf_data_size, max_key_ptrs};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_spill::{ScratchDir, Sorter};

use crate::block_set::BlockSet;
use crate::error::CheckError;
use crate::facts::Facts;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_types::ItemTypes;
use crate::lost::{LostBlocks, LostKeys};
use crate::marks::MarkCounts;
use crate::options::{CheckOptions, Phase};
use crate::report::Report;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited};

/// Number of blocks between two events of a phase.
const PROGRESS_BLOCKS: u64 = 1024;
/// Runs of fewer bytes would be merged too often.
const LEAST_SORTER_BYTES: usize = 4 << 10;

pub(crate) struct State<'a> {
    pub(crate) options: &'a CheckOptions,
    scratch_dir: ScratchDir,
    pub(crate) report: Report,
    pub(crate) facts: Facts,
    /// Blocks with FULL_BACKREF, which are themselves the parent in their references. Complete after the extent tree
    /// was read.
    pub(crate) full_backrefs: BlockSet,
    pub(crate) lost_blocks: LostBlocks,
    /// The key ranges of lost blocks, by tree.
    pub(crate) lost_keys: HashMap<RootId, LostKeys>,
    visited: BlockSet,
    /// Blocks that are reachable from their owner.
    at_home: BlockSet,
    /// Blocks that are reachable from another tree, while their references belong to the owner.
    elsewhere: BlockSet,
    /// Whether this is the second pass, which does not report defects of blocks again.
    is_second_pass: bool,
    /// Unknown item types that were reported.
    unknown_types: BTreeSet<u8>,
    marks: MarkCounts,
    watch: Watch<'a>,
    phase: Phase,
    blocks: u64,
}

impl<'a> State<'a> {
    pub(crate) fn new(
        volume: &CheckedVolume,
        options: &'a CheckOptions,
        progress: &'a mut dyn Progress,
    ) -> State<'a> {
        let sectorsize = volume.sectorsize();
        State {
            options,
            scratch_dir: scratch_dir(volume, options),
            report: Report {
                uuid: volume.superblock().fsid,
                data_was_read: options.data_csums && !volume.is_dump(),
                is_dump: volume.is_dump(),
                ..Report::default()
            },
            facts: Facts::new(),
            full_backrefs: BlockSet::new(sectorsize),
            lost_blocks: LostBlocks::new(sectorsize),
            lost_keys: HashMap::new(),
            visited: BlockSet::new(sectorsize),
            at_home: BlockSet::new(sectorsize),
            elsewhere: BlockSet::new(sectorsize),
            is_second_pass: false,
            unknown_types: BTreeSet::new(),
            marks: MarkCounts::new(),
            watch: Watch::new(progress),
            phase: Phase::Superblocks,
            blocks: 0,
        }
    }

    pub(crate) fn add(&mut self, at: Place, fault: Fault) {
        self.report.add(at, fault, self.options.max_issues);
    }

    /// Counts a finding that may only be a consequence of an unreadable block.
    pub(crate) fn suppress(&mut self) {
        self.report.suppressed += 1;
    }

    /// Adds a finding, unless it may only be a consequence of a lost block.
    pub(crate) fn add_unless(&mut self, may_be_lost: bool, at: Place, fault: Fault) {
        if may_be_lost {
            self.suppress()
        } else {
            self.add(at, fault)
        }
    }

    pub(crate) fn start(&mut self, phase: Phase) -> Result<(), CheckError> {
        self.phase = phase;
        self.tell_progress()
    }

    fn tell_progress(&mut self) -> Result<(), CheckError> {
        let progress = PhaseProgress {
            phase: self.phase.number(),
            phases: Phase::ALL.len(),
            subject: self.phase.subject(),
            blocks: self.blocks,
            issues: self.report.found(),
        };
        Ok(self.watch.report(&Event::Phase(progress))?)
    }

    /// Fails if the observer cancels the check.
    pub(crate) fn poll(&mut self) -> Result<(), CheckError> {
        Ok(self.watch.advance(0)?)
    }

    /// Creates a sorter with its share of the memory.
    pub(crate) fn sorter<const N: usize>(&self) -> Sorter<[u64; N]> {
        let share = usize::try_from(self.options.memory_bytes / 8).unwrap_or(usize::MAX);
        Sorter::new(&self.scratch_dir, share.max(LEAST_SORTER_BYTES))
    }

    /// Clears the visited blocks, so that the second pass collects all facts again.
    pub(crate) fn start_second_pass(&mut self) {
        self.is_second_pass = true;
        self.visited.clear();
        let sorter = self.sorter();
        self.facts.start_recording(sorter);
    }

    pub(crate) fn is_second_pass(&self) -> bool {
        self.is_second_pass
    }

    /// Adds a tree. Must be called for the root of each tree that is in the extent tree.
    pub(crate) fn enter_tree(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.facts.tell_root(root.tree, root.bytenr.0)
    }

    /// Adds a block. Must be called for each block of a tree that is in the extent tree. Returns whether the block is
    /// new: subvolumes share blocks.
    pub(crate) fn enter_block(
        &mut self,
        root: &TreeRoot,
        block: Visited<'_>,
    ) -> Result<bool, CheckError> {
        self.blocks += 1;
        if self.blocks.is_multiple_of(PROGRESS_BLOCKS) {
            self.tell_progress()?;
        }
        let bytenr = block.node.bytenr().0;
        let is_full = self.full_backrefs.contains(bytenr);
        if block.node.owner() == root.tree {
            self.at_home.insert(bytenr);
            if is_full && !self.is_second_pass {
                self.check_holder(root, block);
            }
        } else if !is_full && root.tree != RootId::TREE_RELOC {
            self.elsewhere.insert(bytenr);
        }
        if !self.visited.insert(bytenr) {
            return Ok(false);
        }
        self.facts
            .tell_block(block.node, block.first_slot, is_full)?;
        if !self.is_second_pass {
            self.measure(root, block);
            self.check_generations(root, block);
            self.check_backref_form(root, block, is_full);
        }
        Ok(true)
    }

    /// Counts the marks of makers in a superblock.
    pub(crate) fn count_superblock_marks(&mut self, superblock: &Superblock) {
        self.marks.add(Marks::of_superblock(superblock));
    }

    /// Adds the marks found so far to the report.
    pub(crate) fn report_marks(&mut self) {
        self.report.marks = self.marks.found();
    }

    /// Reports items with types that do not belong in the tree, and each unknown type once. Trees of makers may contain
    /// any type.
    pub(crate) fn check_types(&mut self, root: &TreeRoot, block: Visited<'_>) {
        if is_makers_tree(root.tree) {
            return;
        }
        let has_files = root.tree.holds_files() || root.tree == RootId::TREE_RELOC;
        let types = ItemTypes::of(root.tree);
        for (key, _) in block.node.items() {
            let item_type = key.item_type.0;
            if types.allow(item_type) {
                continue;
            }
            let at = Place::item(root.tree, key).at(block.node.bytenr().0);
            if types.is_known(item_type) {
                self.add(at, Fault::ItemMisplaced {});
            } else if has_files && !Marks::of_item_type(key).is_empty() {
                // Counted as a mark.
            } else if self.unknown_types.insert(item_type) {
                self.add(at, Fault::ItemTypeUnknown { item_type });
            }
        }
    }

    fn measure(&mut self, root: &TreeRoot, block: Visited<'_>) {
        let nodesize = block.node.block().len();
        let figures = &mut self.report.figures;
        figures.tree_bytes += nodesize as u64;
        if root.tree.holds_files() || root.tree == RootId::TREE_RELOC {
            figures.fs_tree_bytes += nodesize as u64;
        } else if root.tree == RootId::EXTENT_TREE {
            figures.extent_tree_bytes += nodesize as u64;
        }
        let node = block.node;
        let waste = if node.is_leaf() {
            self.marks.add_items(node);
            let types = ItemTypes::of(root.tree);
            let mut items = 0;
            let mut all_belong = true;
            for head in node.heads() {
                items += ITEM_HEAD_SIZE + head.size.get() as usize;
                all_belong &= types.allow(head.key.item_type);
            }
            if !all_belong {
                self.check_types(root, block);
            }
            leaf_data_size(nodesize).saturating_sub(items)
        } else {
            (max_key_ptrs(nodesize) - node.len()) * size_of::<KeyPtr>()
        };
        self.report.figures.waste_bytes += waste as u64;
    }

    /// Checks that a block and its extent item use one form of references. Relocated blocks, and blocks with an old
    /// backref revision, are the parent in their references.
    fn check_backref_form(&mut self, root: &TreeRoot, block: Visited<'_>, is_full: bool) {
        let flags = block.node.header().flags.get();
        if names_itself(flags) && !is_full {
            let at = Place::tree(root.tree).at(block.node.bytenr().0);
            self.add(at, Fault::BlockBackrefForm { flags });
        }
    }

    /// Checks a block with FULL_BACKREF that is reachable from its owner. Once a deletion has begun, blocks that the
    /// subvolume still contains have this flag.
    fn check_holder(&mut self, root: &TreeRoot, block: Visited<'_>) {
        let flags = block.node.header().flags.get();
        if root.tree.holds_files() && root.dropped.is_none() && !names_itself(flags) {
            let at = Place::tree(root.tree).at(block.node.bytenr().0);
            let owner = root.tree.0;
            self.add(at, Fault::FullBackrefOfHolder { owner });
        }
    }

    fn check_generations(&mut self, root: &TreeRoot, block: Visited<'_>) {
        let parent_generation = block.node.generation().0;
        for ptr in block
            .node
            .ptrs()
            .get(block.first_slot..)
            .unwrap_or_default()
        {
            let generation = ptr.generation.get();
            if generation > parent_generation {
                let child = ptr.blockptr.get();
                self.add(
                    Place::tree(root.tree).at(block.node.bytenr().0),
                    Fault::ChildNewer {
                        child,
                        generation,
                        parent_generation,
                    },
                );
            }
        }
    }

    /// Reports blocks that are not reachable from their owner. Must be called after all trees were read.
    pub(crate) fn check_owners(&mut self) {
        let owners_lost = self.lost_keys.keys().any(|tree| tree.holds_files())
            || self.has_lost(RootId::ROOT_TREE)
            || self.has_lost(RootId::EXTENT_TREE);
        for bytenr in self.elsewhere.without(&self.at_home) {
            self.add_unless(owners_lost, Place::bytenr(bytenr), Fault::BlockOwner {});
        }
    }

    pub(crate) fn take_data_figures(&mut self) {
        let (allocated, referenced) = self.facts.data_bytes();
        self.report.figures.data_bytes_allocated = allocated;
        self.report.figures.data_bytes_referenced = referenced;
    }

    /// Adds a lost block. Must be called for each lost block of a tree.
    pub(crate) fn lose(&mut self, lost: Lost) {
        if !self.is_second_pass {
            let keys = self.lost_keys.entry(lost.tree).or_default();
            keys.add(lost.range);
            if self.lost_blocks.insert(lost.bytenr.0) {
                // Its chunk may be in the lost part of the chunk tree. The chunk tree itself is mapped by the
                // superblock.
                let follows = lost.tree != RootId::CHUNK_TREE
                    && is_unmapped(&lost.fault)
                    && self.has_lost(RootId::CHUNK_TREE);
                let at = Place::tree(lost.tree).at(lost.bytenr.0);
                self.add_unless(follows, at, lost.fault);
            }
        }
    }

    /// Returns whether blocks of the tree were lost.
    pub(crate) fn has_lost(&self, tree: RootId) -> bool {
        self.lost_keys.contains_key(&tree)
    }

    /// Returns whether items of the tree with this objectid may have been lost.
    pub(crate) fn may_have_lost(&self, tree: RootId, objectid: u64) -> bool {
        self.lost_keys
            .get(&tree)
            .is_some_and(|lost| lost.touches(objectid))
    }

    /// Reports bad mirrors of blocks with another valid mirror.
    pub(crate) fn tell_bad_mirrors(&mut self, volume: &CheckedVolume) {
        for record in volume.pool().read_errors() {
            let bytenr = record.logical;
            if self.lost_blocks.contains(bytenr.0) {
                continue;
            }
            let at = Place {
                devid: Some(record.devid),
                ..Place::bytenr(bytenr.0)
            };
            let fault = Fault::MirrorDamaged {
                mirror: record.mirror,
                physical: record.physical.0,
            };
            self.add(at, fault);
        }
    }
}

/// Returns the folder of the options, or the one for the images of the volume.
fn scratch_dir(volume: &CheckedVolume, options: &CheckOptions) -> ScratchDir {
    match &options.scratch_dir {
        Some(folder) => ScratchDir::named(folder),
        None => {
            let devices = volume.pool().devices().into_iter();
            ScratchDir::beside(devices.filter_map(|device| device.path))
        }
    }
}

/// Returns whether a block with these header flags is the parent in its references.
fn names_itself(flags: u64) -> bool {
    let revision = flags >> header_flags::BACKREF_REV_SHIFT;
    flags & header_flags::RELOC != 0 || revision != header_flags::MIXED_BACKREF_REV
}

/// Returns whether a block was not found because its address has no chunk.
fn is_unmapped(fault: &Fault) -> bool {
    let Fault::BlockUnreadable { reason, .. } = fault else {
        return false;
    };
    reason.attempts.iter().any(|attempt| {
        matches!(
            attempt.problem,
            AttemptProblem::Device(DeviceError::NoChunk { .. })
        )
    })
}

//! Comparison of the references in the extent tree with those in all other trees, extent by extent.
//!
//! Runs only if the sums of the first pass differ. All trees are read again, the facts of the differing buckets are
//! sorted, and each extent is checked separately.

use crate::error::CheckError;
use crate::extents::ExtentReader;
use crate::facts::{Fact, FactRecord, Side};
use crate::fault::Fault;
use crate::issue::Place;
use crate::roots::Roots;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

use ubtrfs_format::ids::RootId;

/// A visitor that only collects the facts of trees.
struct Retell<'s, 'a> {
    state: &'s mut State<'a>,
}

impl Visitor for Retell<'_, '_> {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.state.enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        self.state.enter_block(root, block).map(drop)
    }

    fn lost(&mut self, _: &TreeRoot, _: Lost) -> Result<(), CheckError> {
        Ok(())
    }
}

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
) -> Result<(), CheckError> {
    // Without the extent tree, every block and every extent would be reported.
    let Some(extent_tree) = roots.tree_root(RootId::EXTENT_TREE) else {
        return Ok(());
    };
    if state.facts.all_equal() {
        return Ok(());
    }
    state.start_second_pass();
    let nodesize = volume.nodesize();
    walk(
        volume,
        &[extent_tree],
        &mut ExtentReader::new(state, None, nodesize),
    )?;
    let mut trees = vec![volume.chunk_root(), volume.tree_root()];
    let others = roots.entries.iter().map(|entry| entry.tree_root());
    trees.extend(others.filter(|root| root.tree != RootId::EXTENT_TREE));
    walk(volume, &trees, &mut Retell { state })?;
    compare(state, nodesize as u64)
}

fn compare(state: &mut State<'_>, nodesize: u64) -> Result<(), CheckError> {
    let Some(records) = state.facts.take_records() else {
        return Ok(());
    };
    let mut sorted = records.finish()?;
    let mut extent: Option<Extent> = None;
    while let Some(record) = sorted.next_record()? {
        if extent.as_ref().is_none_or(|e| e.bytenr != record[0]) {
            if let Some(mut done) = extent.take() {
                done.finish(state);
            }
            extent = Some(Extent::new(state, record[0], nodesize));
        }
        if let Some(extent) = &mut extent {
            extent.record(state, record);
        }
    }
    if let Some(mut done) = extent {
        done.finish(state);
    }
    Ok(())
}

/// All facts about one address. References are sorted after the facts that show whether the extent exists, so that
/// only one reference is in memory.
struct Extent {
    bytenr: u64,
    /// Level and generation, by side.
    block: [Option<(u8, u64)>; 2],
    /// The length according to the extent tree.
    data_item: Option<u64>,
    /// Whether a file uses it.
    is_used: bool,
    has_recorded_refs: bool,
    is_length_reported: bool,
    is_missing_reported: bool,
    are_blocks_checked: bool,
    reference: Option<Reference>,
    /// Unused references, held back until it is known whether any file uses the extent.
    unused: Vec<Fault>,
    /// Whether its item, or the trees that use it, may have been lost.
    item_lost: bool,
    users_lost: bool,
}

struct Reference {
    fact: Fact,
    /// Indexed by side.
    counts: [u64; 2],
}

/// Maximum number of unused references that are held back for one extent.
const MAX_UNUSED: usize = 64;

impl Extent {
    fn new(state: &State<'_>, bytenr: u64, nodesize: u64) -> Extent {
        let last = bytenr.saturating_add(nodesize - 1);
        let lost = state.lost_keys.get(&RootId::EXTENT_TREE);
        Extent {
            bytenr,
            block: [None; 2],
            data_item: None,
            is_used: false,
            has_recorded_refs: false,
            is_length_reported: false,
            is_missing_reported: false,
            are_blocks_checked: false,
            reference: None,
            unused: Vec::new(),
            item_lost: lost.is_some_and(|lost| lost.overlaps(bytenr, last)),
            users_lost: state.lost_blocks.any,
        }
    }

    fn at(&self) -> Place {
        Place::bytenr(self.bytenr)
    }

    fn record(&mut self, state: &mut State<'_>, record: FactRecord) {
        let [_, kind, a, b, c, side_and_count, length] = record;
        let fact = Fact::from_words([kind, a, b, c]);
        let side = (side_and_count >> 32) as usize & 1;
        let count = side_and_count & u64::from(u32::MAX);
        match fact {
            Fact::Block { level, generation } => {
                self.block[side] = Some((level, generation));
                return;
            }
            Fact::Data => {
                self.data_item = Some(length);
                return;
            }
            _ => {}
        }
        if self.reference.as_ref().is_none_or(|r| r.fact != fact) {
            self.finish_reference(state);
            self.reference = Some(Reference {
                fact,
                counts: [0; 2],
            });
        }
        if let Some(reference) = &mut self.reference {
            reference.counts[side] = reference.counts[side].saturating_add(count);
        }
        let is_data = matches!(fact, Fact::DataRef { .. } | Fact::SharedDataRef { .. });
        if side == Side::ExtentTree as usize {
            self.has_recorded_refs = true;
        } else if is_data {
            self.is_used = true;
            self.compare_length(state, length);
        }
    }

    /// Compares the extent's length in a file with the length in its item.
    fn compare_length(&mut self, state: &mut State<'_>, file: u64) {
        match self.data_item {
            Some(item) if item != file && !self.is_length_reported => {
                self.is_length_reported = true;
                state.add(self.at(), Fault::DataExtentLength { item, file });
            }
            None if !self.is_missing_reported => {
                self.is_missing_reported = true;
                let fault = Fault::DataWithoutExtent { length: file };
                state.add_unless(self.item_lost, self.at(), fault);
            }
            _ => {}
        }
    }

    /// Checks whether the block exists on both sides.
    fn check_blocks(&mut self, state: &mut State<'_>) {
        if std::mem::replace(&mut self.are_blocks_checked, true) {
            return;
        }
        let [item, tree] = self.block;
        match (item, tree) {
            (None, Some((level, _))) => {
                let fault = Fault::BlockWithoutExtent { level };
                state.add_unless(self.item_lost, self.at(), fault);
            }
            (Some((level, _)), None) => {
                let fault = Fault::ExtentWithoutBlock { level };
                state.add_unless(self.users_lost, self.at(), fault);
            }
            (Some((item_level, item_generation)), Some((level, generation)))
                if (item_level, item_generation) != (level, generation) =>
            {
                let fault = Fault::BlockExtentDiffers {
                    level,
                    generation,
                    item_level,
                    item_generation,
                };
                state.add(self.at(), fault);
            }
            _ => {}
        }
    }

    fn finish_reference(&mut self, state: &mut State<'_>) {
        let Some(reference) = self.reference.take() else {
            return;
        };
        self.check_blocks(state);
        let [recorded, found] = reference.counts;
        if recorded == found {
            return;
        }
        let is_data = matches!(
            reference.fact,
            Fact::DataRef { .. } | Fact::SharedDataRef { .. }
        );
        // An extent that is missing on one side was already reported.
        let has_item = if is_data {
            self.data_item.is_some()
        } else {
            self.block[0].is_some()
        };
        let has_users = if is_data {
            true
        } else {
            self.block[1].is_some() || state.lost_blocks.contains(self.bytenr)
        };
        if !has_item || !has_users {
            return;
        }
        // The extent item determines which tree owns the references of a block.
        let lost = if recorded < found {
            self.item_lost || state.has_lost(RootId::EXTENT_TREE)
        } else {
            self.users_lost
        };
        let fault = match (reference.fact, recorded < found) {
            (Fact::TreeRef { root }, true) => Fault::BlockRefMissing { root },
            (Fact::TreeRef { root }, false) => Fault::BlockRefUnused { root },
            (Fact::SharedBlockRef { parent }, true) => Fault::SharedBlockRefMissing { parent },
            (Fact::SharedBlockRef { parent }, false) => Fault::SharedBlockRefUnused { parent },
            (
                Fact::DataRef {
                    root,
                    inode,
                    offset,
                },
                _,
            ) => Fault::DataRefCount {
                root,
                inode,
                offset,
                recorded,
                found,
            },
            (Fact::SharedDataRef { parent }, _) => Fault::SharedDataRefCount {
                parent,
                recorded,
                found,
            },
            (Fact::Block { .. } | Fact::Data, _) => return,
        };
        // If no file uses the extent, a single fault covers all its references.
        if is_data && found == 0 && !self.is_used && self.unused.len() < MAX_UNUSED {
            self.unused.push(fault);
        } else {
            state.add_unless(lost, self.at(), fault);
        }
    }

    fn finish(&mut self, state: &mut State<'_>) {
        self.finish_reference(state);
        self.check_blocks(state);
        match self.data_item {
            Some(length) if !self.is_used && self.has_recorded_refs => {
                let fault = Fault::DataExtentUnused { length };
                state.add_unless(self.users_lost, self.at(), fault);
            }
            _ => {
                for fault in std::mem::take(&mut self.unused) {
                    state.add_unless(self.users_lost, self.at(), fault);
                }
            }
        }
    }
}

//! The phases of a check, in order.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::KeyType;

use crate::chunks::Chunks;
use crate::csums::Expectations;
use crate::error::CheckError;
use crate::extents::ExtentReader;
use crate::fault::Fault;
use crate::files;
use crate::free_space;
use crate::issue::Place;
use crate::log_tree;
use crate::options::Phase;
use crate::references;
use crate::root_links::RootLinks;
use crate::roots::Roots;
use crate::space::Spaces;
use crate::state::State;
use crate::superblocks;
use crate::tree_root::TreeRoot;
use crate::uuids;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

pub(crate) fn run(state: &mut State<'_>, volume: &mut CheckedVolume) -> Result<(), CheckError> {
    state.start(Phase::Superblocks)?;
    superblocks::check(state, volume);
    state.count_superblock_marks(volume.superblock());

    state.start(Phase::Chunks)?;
    let chunks = Chunks::read(state, volume)?;
    volume.choose_tree_root(state.options)?;
    let mut links = RootLinks::new(state.sorter());
    let roots = Roots::read(state, volume, &mut links)?;
    let mut spaces = chunks.check(state, volume, &roots)?;

    state.start(Phase::Roots)?;
    roots.check(state, volume);
    uuids::check(state, volume, &roots)?;
    walk(volume, &roots.other_trees(), &mut Blocks { state })?;

    state.start(Phase::Extents)?;
    let mut expectations = Expectations::new(state);
    if let Some(root) = roots.tree_root(RootId::EXTENT_TREE) {
        let nodesize = volume.nodesize();
        let mut reader = ExtentReader::new(state, Some(&mut spaces), nodesize);
        walk(volume, &[root], &mut reader)?;
        check_bytes_used(state, volume);
        check_used(state, &spaces);
        log_tree::check(state, volume, &roots, &mut expectations)?;
    }

    state.start(Phase::FreeSpace)?;
    free_space::check(state, volume, &roots, &spaces)?;

    state.start(Phase::Files)?;
    let trees = roots.file_trees();
    files::check(state, volume, &trees, &mut links, &mut expectations)?;
    links.check(state, &roots.by_id())?;
    let mut reader = Relocated {
        state,
        expectations: &mut expectations,
    };
    walk(volume, &roots.relocation_trees(), &mut reader)?;

    state.start(Phase::Checksums)?;
    if let Some(root) = roots.tree_root(RootId::CSUM_TREE) {
        expectations.check(state, volume, &root)?;
    }

    state.start(Phase::References)?;
    state.check_owners();
    references::check(state, volume, &roots)?;
    state.tell_bad_mirrors(volume);
    state.take_data_figures();
    state.report_marks();
    state.report.finish(state.options.max_issues);
    Ok(())
}

fn check_used(state: &mut State<'_>, spaces: &Spaces) {
    for space in spaces.all() {
        let Some(group) = space.group else { continue };
        if group.used != space.used {
            let lost = state.lost_keys.get(&RootId::EXTENT_TREE);
            let lost = lost.is_some_and(|lost| lost.overlaps(space.start, space.end() - 1));
            let fault = Fault::BlockGroupUsed {
                used: group.used,
                found: space.used,
            };
            state.add_unless(lost, Place::bytenr(space.start), fault);
        }
    }
}

fn check_bytes_used(state: &mut State<'_>, volume: &CheckedVolume) {
    let superblock = volume.superblock().bytes_used.get();
    let found = state.report.figures.bytes_used;
    if superblock != found && volume.is_current() {
        let lost = state.has_lost(RootId::EXTENT_TREE);
        let fault = Fault::BytesUsed { superblock, found };
        state.add_unless(lost, Place::default(), fault);
    }
}

/// A visitor for trees that are only checked at the block level.
struct Blocks<'s, 'a> {
    state: &'s mut State<'a>,
}

impl Visitor for Blocks<'_, '_> {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.state.enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        self.state.enter_block(root, block).map(drop)
    }

    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        self.state.lose(lost);
        Ok(())
    }
}

/// A visitor for the trees of an interrupted balance. Moved data may only be reachable from them. The inodes with
/// this data belong to the subvolumes, which were read before.
struct Relocated<'s, 'a> {
    state: &'s mut State<'a>,
    expectations: &'s mut Expectations,
}

impl Visitor for Relocated<'_, '_> {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.state.enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        if !self.state.enter_block(root, block)? {
            return Ok(());
        }
        for (key, bytes) in block.node.items() {
            if key.item_type == KeyType::EXTENT_DATA
                && let Some(FileExtent::Regular {
                    head,
                    body,
                    prealloc,
                }) = FileExtent::decode(bytes)
            {
                self.expectations.add(head, body, prealloc, None)?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        self.state.lose(lost);
        Ok(())
    }
}

//! Sequential reads of whole trees, every block in key order.
//!
//! A reader thread descends the trees, reads children in batches and verifies each block. The visitor receives the
//! valid blocks in batches on the caller's thread, and an event for every lost child. The visitor interprets the
//! blocks.
//!
//! Invariants
//! - WALK-1: every block has passed `format::check` and matches its parent's level, generation, owner and first key.
//!   All its keys are below its parent's next one, so that a walk terminates on any input.
//! - WALK-2: a lost child loses only its own subtree.
//!
//! At most `IN_FLIGHT` batches are queued for the visitor, however large the tree.
//! Not here: the choice of mirrors (`device`).

mod read;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;

/// A block as passed to a visitor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visited<'a> {
    pub(crate) node: Node<'a>,
    /// Children in earlier slots have been deleted.
    pub(crate) first_slot: usize,
}

/// A block that could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) tree: RootId,
    pub(crate) bytenr: Logical,
    /// The first key that it may contain, and the exclusive end of its range.
    pub(crate) range: (Key, Option<Key>),
    pub(crate) fault: Fault,
}

/// Receives the events of a walk. An error stops the walk.
pub(crate) trait Visitor {
    fn begin(&mut self, _root: &TreeRoot) -> Result<(), CheckError> {
        Ok(())
    }
    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError>;
    fn lost(&mut self, root: &TreeRoot, lost: Lost) -> Result<(), CheckError>;
    fn end(&mut self, _root: &TreeRoot) -> Result<(), CheckError> {
        Ok(())
    }
}

#[derive(Debug)]
enum Event {
    Begin(usize),
    End(usize),
    Block {
        /// Offset in the batch's bytes.
        offset: usize,
        first_slot: usize,
    },
    Lost(Box<Lost>),
}

/// A batch of blocks on its way from the reader to the visitor.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    used: usize,
    events: Vec<Event>,
}

/// Size of a batch, which has at least `BATCH_MIN_BLOCKS` blocks.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_MIN_BLOCKS: usize = 16;
/// Number of queued batches, in addition to the one being filled and the one being visited.
const IN_FLIGHT: usize = 2;

/// Reads all `roots` one after the other.
pub(crate) fn walk<V: Visitor>(
    volume: &CheckedVolume,
    roots: &[TreeRoot],
    visitor: &mut V,
) -> Result<(), CheckError> {
    let nodesize = volume.nodesize();
    let batch_bytes = BATCH_BYTES.max(BATCH_MIN_BLOCKS * nodesize);
    let (full, filled) = sync_channel::<Batch>(IN_FLIGHT);
    let (spare, emptied) = sync_channel::<Batch>(IN_FLIGHT + 2);
    std::thread::scope(|scope| {
        let reader = Builder::new().name("ubtrfs-read".to_owned());
        let read = move || read::Reader::new(volume, batch_bytes, full, emptied).read_all(roots);
        reader
            .spawn_scoped(scope, read)
            .map_err(CheckError::Thread)?;
        visit(nodesize, roots, visitor, filled, &spare)
    })
}

fn visit<V: Visitor>(
    nodesize: usize,
    roots: &[TreeRoot],
    visitor: &mut V,
    filled: Receiver<Batch>,
    spare: &SyncSender<Batch>,
) -> Result<(), CheckError> {
    let mut at = 0;
    while let Ok(mut batch) = filled.recv() {
        for event in batch.events.drain(..) {
            match event {
                Event::Begin(index) => {
                    at = index;
                    visitor.begin(&roots[at])?;
                }
                Event::End(index) => visitor.end(&roots[index])?,
                Event::Block { offset, first_slot } => {
                    let bytes = &batch.bytes[offset..offset + nodesize];
                    let node = Node::new(bytes).expect("checked blocks are longer than a header");
                    visitor.block(&roots[at], Visited { node, first_slot })?;
                }
                Event::Lost(lost) => visitor.lost(&roots[at], *lost)?,
            }
        }
        batch.used = 0;
        // This fails if the reader has already finished.
        let _ = spare.try_send(batch);
    }
    Ok(())
}

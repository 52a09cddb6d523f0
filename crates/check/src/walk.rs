//! Reading whole trees, every block of them, in key order.
//!
//! A reader thread goes down the trees, reads children many at a time and checks each block. The visitor gets the
//! sound ones in batches on the caller's thread, and is told of every child that is lost. The meaning of a block is the
//! visitor's business.
//!
//! Invariants
//! - WALK-1: every block was passed by `format::check` and is what its parent says: level, generation, owner
//!   and first key. All its keys are below its parent's next one, so that a walk ends on any bytes.
//! - WALK-2: a lost child costs its own subtree and nothing else.
//!
//! At most `IN_FLIGHT` batches wait for the visitor, however large the tree.
//! Not here: which mirror is read (`device`).

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

/// A block as a visitor gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visited<'a> {
    pub(crate) node: Node<'a>,
    /// Children in the slots before it are gone.
    pub(crate) first_slot: usize,
}

/// A block that could not be had.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) tree: RootId,
    pub(crate) bytenr: Logical,
    /// The first key that it may hold, and the first one behind it.
    pub(crate) range: (Key, Option<Key>),
    pub(crate) fault: Fault,
}

/// Gets what a walk finds. An error ends the walk.
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
        /// Where in the batch's bytes.
        offset: usize,
        first_slot: usize,
    },
    Lost(Box<Lost>),
}

/// The blocks that go from the reader to the visitor at a time.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    used: usize,
    events: Vec<Event>,
}

/// Bytes of a batch; at least a few blocks.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_MIN_BLOCKS: usize = 16;
/// Batches on their way beside the one that is filled and the one that is visited.
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
        // The reader may be done already.
        let _ = spare.try_send(batch);
    }
    Ok(())
}

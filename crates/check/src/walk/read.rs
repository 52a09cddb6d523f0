//! The reader's side of a walk: the order of blocks, and reading them at queue depth.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use ubtrfs_device::{CheckedRead, ReadFailure};
use ubtrfs_format::check::{CorruptBlock, Expect, check_block};
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;

use super::{Batch, Event, Lost};
use crate::fault::Fault;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;

/// Number of interior children read per batch. Leaves fill a whole batch.
const NODE_GROUP: usize = 16;

/// The visitor has stopped.
struct Closed;

pub(super) struct Reader<'a> {
    volume: &'a CheckedVolume,
    nodesize: usize,
    batch_bytes: usize,
    full: SyncSender<Batch>,
    emptied: Receiver<Batch>,
    batch: Batch,
}

/// A child to read.
#[derive(Clone, Copy)]
struct Wanted {
    expect: Expect,
    /// Exclusive upper bound of its keys.
    bound: Option<Key>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        volume: &'a CheckedVolume,
        batch_bytes: usize,
        full: SyncSender<Batch>,
        emptied: Receiver<Batch>,
    ) -> Reader<'a> {
        Reader {
            volume,
            nodesize: volume.nodesize(),
            batch_bytes,
            full,
            emptied,
            batch: Batch::default(),
        }
    }

    pub(super) fn read_all(mut self, roots: &[TreeRoot]) {
        for (index, root) in roots.iter().enumerate() {
            self.batch.events.push(Event::Begin(index));
            if self.read_tree(root).is_err() {
                return;
            }
            self.batch.events.push(Event::End(index));
        }
        let _ = self.send();
    }

    fn send(&mut self) -> Result<(), Closed> {
        let next = self.emptied.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        self.full.send(batch).map_err(|_| Closed)
    }

    /// Ensures space for at least one block. Returns the number of blocks that fit.
    fn room(&mut self) -> Result<usize, Closed> {
        if self.batch.bytes.is_empty() {
            self.batch.bytes.resize(self.batch_bytes, 0);
        }
        let room = (self.batch.bytes.len() - self.batch.used) / self.nodesize;
        if room > 0 {
            return Ok(room);
        }
        self.send()?;
        self.room()
    }

    fn read_tree(&mut self, root: &TreeRoot) -> Result<(), Closed> {
        let wanted = Wanted {
            expect: Expect {
                bytenr: root.bytenr,
                level: Some(root.level),
                generation: root.generation,
                owner: Some(root.tree),
                first_key: None,
            },
            bound: None,
        };
        let mut bytes = vec![0; self.nodesize];
        let [fault] = &mut self.read(&[wanted], &mut bytes)[..] else {
            return Ok(());
        };
        match fault.take() {
            Some(fault) => {
                self.lose(root, &wanted, fault);
                Ok(())
            }
            None => self.descend(root, bytes, None),
        }
    }

    fn lose(&mut self, root: &TreeRoot, wanted: &Wanted, fault: Fault) {
        let first = wanted.expect.first_key.unwrap_or(Key::MIN);
        self.batch.events.push(Event::Lost(Box::new(Lost {
            tree: root.tree,
            bytenr: wanted.expect.bytenr,
            range: (first, wanted.bound),
            fault,
        })));
    }

    /// Passes on a block from another buffer, and then its subtree. Levels strictly descend, so that the recursion
    /// depth is bounded.
    fn descend(
        &mut self,
        root: &TreeRoot,
        bytes: Vec<u8>,
        bound: Option<Key>,
    ) -> Result<(), Closed> {
        let node = Node::new(&bytes).expect("checked blocks are longer than a header");
        let first_slot = match root.dropped {
            Some((key, level)) if node.level() >= level && !node.is_leaf() => node.child_slot(&key),
            _ => 0,
        };
        self.room()?;
        let offset = self.batch.used;
        self.batch.bytes[offset..offset + self.nodesize].copy_from_slice(&bytes);
        self.batch.used += self.nodesize;
        self.batch.events.push(Event::Block { offset, first_slot });
        let children: Vec<Wanted> = (first_slot..node.len())
            .filter_map(|slot| wanted_child(root, node, slot, bound))
            .collect();
        match node.level() {
            0 => Ok(()),
            1 => self.leaves(root, &children),
            _ => self.nodes(root, &children),
        }
    }

    fn leaves(&mut self, root: &TreeRoot, children: &[Wanted]) -> Result<(), Closed> {
        let mut left = children;
        while !left.is_empty() {
            let room = self.room()?;
            let (group, rest) = left.split_at(room.min(left.len()));
            let start = self.batch.used;
            let mut bytes = std::mem::take(&mut self.batch.bytes);
            let end = start + group.len() * self.nodesize;
            let faults = self.read(group, &mut bytes[start..end]);
            self.batch.bytes = bytes;
            self.batch.used = end;
            for (index, (wanted, fault)) in group.iter().zip(faults).enumerate() {
                match fault {
                    // WALK-2
                    Some(fault) => self.lose(root, wanted, fault),
                    None => self.batch.events.push(Event::Block {
                        offset: start + index * self.nodesize,
                        first_slot: 0,
                    }),
                }
            }
            left = rest;
        }
        Ok(())
    }

    fn nodes(&mut self, root: &TreeRoot, children: &[Wanted]) -> Result<(), Closed> {
        for group in children.chunks(NODE_GROUP) {
            let mut bytes = vec![0; group.len() * self.nodesize];
            let faults = self.read(group, &mut bytes);
            let blocks = bytes.chunks(self.nodesize);
            for ((wanted, fault), block) in group.iter().zip(faults).zip(blocks) {
                match fault {
                    Some(fault) => self.lose(root, wanted, fault),
                    None => self.descend(root, block.to_vec(), wanted.bound)?,
                }
            }
        }
        Ok(())
    }

    /// Reads blocks, merging adjacent ones; returns the defect of each, if any.
    fn read(&self, wanted: &[Wanted], bytes: &mut [u8]) -> Vec<Option<Fault>> {
        let context = self.volume.context();
        let nodesize = self.nodesize;
        let mut states: Vec<State> = wanted.iter().map(|_| State::Unread).collect();
        let runs = runs(wanted, nodesize as u64);
        let mut checks: Vec<_> = {
            let mut rest = states.as_mut_slice();
            runs.iter()
                .map(|run| {
                    let (states, after) = std::mem::take(&mut rest).split_at_mut(run.len());
                    rest = after;
                    let context = &context;
                    move |index: usize, block: &[u8]| {
                        states[index] = match check(block, context, &run[index]) {
                            Ok(()) => State::Sound,
                            Err(fault) => State::Bad(fault),
                        };
                        matches!(states[index], State::Sound)
                    }
                })
                .collect()
        };
        let mut rest = &mut *bytes;
        let mut reads: Vec<CheckedRead<'_>> = runs
            .iter()
            .zip(&mut checks)
            .map(|(run, good)| {
                let (buf, after) = std::mem::take(&mut rest).split_at_mut(run.len() * nodesize);
                rest = after;
                CheckedRead {
                    logical: run[0].expect.bytenr,
                    buf,
                    block_bytes: nodesize,
                    good,
                    repairs: false,
                    result: Ok(()),
                }
            })
            .collect();
        match reads.as_mut_slice() {
            [one] => {
                one.result = self.volume.pool().read_checked(
                    one.logical,
                    one.buf,
                    one.block_bytes,
                    &mut *one.good,
                );
            }
            many => self.volume.pool().read_checked_batch(many),
        }
        drop(reads);
        drop(checks);
        let blocks = bytes.chunks_mut(nodesize);
        wanted
            .iter()
            .zip(states)
            .zip(blocks)
            .map(|((wanted, state), block)| self.fault(wanted, state, block))
            .collect()
    }

    fn fault(&self, wanted: &Wanted, state: State, block: &mut [u8]) -> Option<Fault> {
        match state {
            State::Sound => None,
            State::Bad(fault) => Some(fault),
            State::Unread => match self.read_alone(wanted, block) {
                Ok(()) => None,
                Err(reason) => Some(Fault::BlockUnreadable {
                    level: wanted.expect.level.unwrap_or(0),
                    reason: Arc::new(reason),
                }),
            },
        }
    }

    /// Reads a block again that failed on all mirrors. The error gives the exact causes.
    fn read_alone(&self, wanted: &Wanted, block: &mut [u8]) -> Result<(), ReadFailure> {
        let context = self.volume.context();
        self.volume.pool().read_checked(
            wanted.expect.bytenr,
            block,
            self.nodesize,
            &mut |_, block| check(block, &context, wanted).is_ok(),
        )
    }
}

enum State {
    Unread,
    Sound,
    Bad(Fault),
}

fn check(
    block: &[u8],
    context: &ubtrfs_format::check::BlockContext<'_>,
    wanted: &Wanted,
) -> Result<(), Fault> {
    // WALK-1
    let level = wanted.expect.level.unwrap_or(0);
    let corrupt = |reason: CorruptBlock| Fault::BlockCorrupt { level, reason };
    check_block(block, context, &wanted.expect).map_err(corrupt)?;
    let node = Node::new(block).expect("checked blocks are longer than a header");
    let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
    match (last, wanted.bound) {
        (Some(last), Some(bound)) if last >= bound => {
            Err(Fault::BlockKeyBound { level, last, bound })
        }
        _ => Ok(()),
    }
}

/// Splits the list wherever a block is not adjacent to the previous one.
fn runs(wanted: &[Wanted], nodesize: u64) -> Vec<&[Wanted]> {
    wanted
        .chunk_by(|before, after| {
            before.expect.bytenr.checked_add(nodesize) == Some(after.expect.bytenr)
        })
        .collect()
}

fn wanted_child(
    root: &TreeRoot,
    node: Node<'_>,
    slot: usize,
    bound: Option<Key>,
) -> Option<Wanted> {
    let ptr = node.ptrs().get(slot)?;
    Some(Wanted {
        expect: Expect {
            bytenr: Logical(ptr.blockptr.get()),
            level: Some(node.level().saturating_sub(1)),
            generation: Some(Transid(ptr.generation.get())),
            owner: Some(root.tree),
            first_key: Some(ptr.key.get()),
        },
        bound: node.key(slot + 1).or(bound),
    })
}

//! A tree with committed, frozen and mutable sets, whose items may have any key.

use std::hint::black_box;
use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{
    ApplyIo, Block, BlockFormat, BlockSink, BuildError, CommittedRoot, LiveTree, NodeStore,
    TreeBlock, TreeError, apply,
};

use super::{Work, blocks, scattered};

const ITEMS: u64 = 4000;
const CALLS: u64 = 1000;
const TREE: RootId = RootId::UUID_TREE;

fn key(offset: u64) -> Key {
    Key::new(offset, KeyType::UUID_KEY_SUBVOL, offset)
}

fn value() -> Arc<[u8]> {
    Arc::from([7_u8; 56])
}

/// An allocator of blocks in memory, at addresses that no device has.
struct Io {
    store: Arc<NodeStore>,
    next: u64,
    /// Blocks below this address are kept when they are retired, because the next batch reads them again.
    kept: u64,
}

/// An error message.
#[derive(Debug)]
#[expect(dead_code, reason = "shown by a panic only")]
struct IoError(String);

impl From<BuildError> for IoError {
    fn from(error: BuildError) -> IoError {
        IoError(error.to_string())
    }
}

impl From<TreeError> for IoError {
    fn from(error: TreeError) -> IoError {
        IoError(error.to_string())
    }
}

impl BlockSink for Io {
    type Error = IoError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, IoError> {
        self.next += self.store.nodesize() as u64;
        Ok(Logical(self.next))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), IoError> {
        self.store.stage(block)?;
        Ok(())
    }
}

impl ApplyIo for Io {
    fn read(&mut self, expect: &Expect) -> Result<Block, IoError> {
        Ok(self.store.read(TREE, expect)?)
    }

    fn retire(&mut self, old: &Block) -> Result<(), IoError> {
        let place = old.node().bytenr();
        if place.0 > self.kept {
            self.store.unstage(place);
        }
        Ok(())
    }
}

/// A tree, and the state that its commits need.
struct Rig {
    tree: Arc<LiveTree>,
    io: Io,
    format: BlockFormat,
}

impl Rig {
    fn new() -> Rig {
        let opened = blocks::volume();
        let volume = opened.engine();
        let store = Arc::clone(volume.node_store());
        let root = volume.tree(TREE).expect("it is there").view.committed();
        let superblock = volume.superblock();
        Rig {
            tree: LiveTree::new(Arc::clone(&store), root),
            io: Io {
                store,
                next: 1 << 50,
                kept: 0,
            },
            format: BlockFormat {
                nodesize: volume.node_store().nodesize(),
                fsid: superblock.fsid,
                chunk_tree_uuid: superblock.fsid,
                generation: Transid(superblock.generation.get() + 1),
            },
        }
    }

    /// Creates a rig with a third of the items in each set.
    fn with_three_sets() -> Rig {
        let mut rig = Rig::new();
        let offsets: Vec<u64> = scattered(ITEMS).collect();
        let thirds: Vec<_> = offsets.chunks(offsets.len().div_ceil(3)).collect();
        for (at, third) in thirds.iter().enumerate() {
            for &offset in *third {
                rig.tree.put(key(offset), value());
            }
            match at {
                0 => rig.commit(),
                1 => drop(rig.tree.freeze()),
                _ => {}
            }
        }
        rig
    }

    fn commit(&mut self) {
        let frozen = self.tree.freeze().expect("something changed");
        let root = self.applied(&frozen);
        self.tree.publish(root);
    }

    fn applied(&mut self, frozen: &ubtrfs_tree::FrozenSet) -> CommittedRoot {
        let root = self.tree.committed();
        let changes = frozen.changes();
        apply(&self.format, &root, &changes, &mut self.io).expect("blocks are in memory")
    }
}

pub(crate) fn get() -> Work {
    let rig = Rig::with_three_sets();
    let view = rig.tree.view();
    Work::new("get", CALLS, move || {
        for offset in scattered(CALLS) {
            let found = view.get(&key(offset)).expect("blocks are in memory");
            black_box(found.is_some());
        }
    })
}

pub(crate) fn put() -> Work {
    let rig = Rig::with_three_sets();
    let value = value();
    Work::new("put", CALLS, move || {
        for offset in scattered(CALLS) {
            rig.tree.put(key(offset), Arc::clone(&value));
        }
    })
}

pub(crate) fn range() -> Work {
    let rig = Rig::with_three_sets();
    let view = rig.tree.view();
    Work::new("range", CALLS, move || {
        let mut cursor = view.cursor();
        let mut there = cursor.seek(&key(0)).expect("blocks are in memory");
        for _ in 1..CALLS {
            black_box(cursor.current());
            there = there && cursor.advance().expect("blocks are in memory");
        }
        assert!(there, "there are more items than are walked over");
    })
}

pub(crate) fn apply_batch() -> Work {
    let mut rig = Rig::with_three_sets();
    let frozen = rig.tree.frozen().expect("the second third");
    rig.io.kept = rig.io.next;
    Work::new("apply", frozen.len() as u64, move || {
        // The same batch on the same tree. Its new blocks are dropped, because nothing refers to them.
        let before = rig.io.next;
        let root = rig.applied(&frozen);
        black_box(root);
        for place in (before..rig.io.next).step_by(rig.format.nodesize) {
            rig.io
                .store
                .unstage(Logical(place + rig.format.nodesize as u64));
        }
        rig.io.next = before;
    })
}

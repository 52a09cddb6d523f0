//! A volume in memory for the tests: a pool of one device, a store, and a minimal commit that only handles trees.
//!
//! Freed blocks are reused as soon as their epoch has no reader. So a reader without a token sees foreign blocks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, MemDevice, Pool, PoolOptions, write_superblocks};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::check::Expect;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::{Chunk, DevItem, Stripe};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::superblock::{MAGIC, Superblock};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use crate::apply::{ApplyIo, Change, apply};
use crate::block::Block;
use crate::build::{BlockFormat, BlockSink, BuildError, OpenLeaf, TreeBlock};
use crate::committed::CommittedRoot;
use crate::epoch::Epoch;
use crate::error::TreeError;
use crate::live::LiveTree;
use crate::store::{NodeStore, StoreOptions};

pub(crate) const NODESIZE: u32 = 4096;
pub(crate) const TREE: RootId = RootId(256);
const DEVICE_BYTES: u64 = 64 << 20;
/// Logical and physical addresses are the same.
const CHUNK_START: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 62 << 20;
const UUID: Uuid = Uuid([7; 16]);

fn superblock() -> Superblock {
    let mut chunk = Chunk::new_zeroed();
    chunk.length = CHUNK_BYTES.into();
    chunk.owner = 2.into();
    chunk.stripe_len = (64 << 10).into();
    chunk.type_ = BlockGroupFlags::SYSTEM.bits().into();
    chunk.sector_size = 4096.into();
    chunk.num_stripes = 1.into();
    chunk.sub_stripes = 1.into();
    let stripe = Stripe {
        devid: 1.into(),
        offset: CHUNK_START.into(),
        dev_uuid: UUID,
    };
    let mut item = DevItem::new_zeroed();
    item.devid = 1.into();
    item.total_bytes = DEVICE_BYTES.into();
    item.sector_size = 4096.into();
    item.uuid = UUID;
    item.fsid = UUID;
    let mut sb = Superblock::new_zeroed();
    sb.fsid = UUID;
    sb.magic = MAGIC;
    sb.generation = 1.into();
    sb.root = CHUNK_START.into();
    sb.chunk_root = CHUNK_START.into();
    sb.chunk_root_generation = 1.into();
    sb.total_bytes = DEVICE_BYTES.into();
    sb.bytes_used = (1 << 20).into();
    sb.num_devices = 1.into();
    sb.sectorsize = 4096.into();
    sb.stripesize = 4096.into();
    sb.unused_leafsize = NODESIZE.into();
    sb.nodesize = NODESIZE.into();
    sb.incompat_flags = Incompat::MIXED_BACKREF.bits().into();
    sb.dev_item = item;
    let key = DiskKey::from(Key::new(256, KeyType::CHUNK_ITEM, CHUNK_START));
    let array = [key.as_bytes(), chunk.as_bytes(), stripe.as_bytes()].concat();
    sb.sys_chunk_array[..array.len()].copy_from_slice(&array);
    sb.sys_chunk_array_size = (array.len() as u32).into();
    sb.seal();
    sb
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A hook that runs after a device read and before it returns.
#[derive(Default)]
struct AfterRead(Mutex<Option<Box<dyn FnOnce() + Send>>>);

#[derive(Debug)]
struct TestDevice {
    memory: MemDevice,
    after_read: AfterRead,
}

impl AfterRead {
    /// Sets the hook for the next read only.
    fn set(&self, then: impl FnOnce() + Send + 'static) {
        *self.0.lock() = Some(Box::new(then));
    }
}

impl std::fmt::Debug for AfterRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AfterRead").finish_non_exhaustive()
    }
}

impl BlockDevice for TestDevice {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buf, offset)?;
        let then = self.after_read.0.lock().take();
        if let Some(then) = then {
            then();
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.memory.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

/// The volume as used by the committing thread.
pub(crate) struct TestVolume {
    pub(crate) store: Arc<NodeStore>,
    device: Arc<TestDevice>,
    pub(crate) format: BlockFormat,
    free: Vec<Logical>,
    /// Freed by this commit.
    retired: Vec<Logical>,
    /// Blocks freed by earlier commits, oldest first, with the last epoch in which they were reachable.
    pinned: Vec<(Arc<Epoch>, Vec<Logical>)>,
}

impl TestVolume {
    pub(crate) fn new(cache_bytes: u64) -> TestVolume {
        let device = Arc::new(TestDevice {
            memory: MemDevice::new(DEVICE_BYTES),
            after_read: AfterRead::default(),
        });
        let path = PathBuf::from("memory");
        write_superblocks(device.as_ref(), &path, &superblock()).unwrap();
        let devices = vec![(path, Arc::clone(&device) as Arc<dyn BlockDevice>)];
        let pool = Pool::from_devices(devices, &PoolOptions::default()).unwrap();
        let options = StoreOptions {
            cache_bytes,
            read_ahead_blocks: 4,
            ..StoreOptions::default()
        };
        let places = (CHUNK_START..CHUNK_START + CHUNK_BYTES).step_by(NODESIZE as usize);
        TestVolume {
            store: Arc::new(NodeStore::new(Arc::new(pool), &options)),
            device,
            format: BlockFormat {
                nodesize: NODESIZE as usize,
                fsid: UUID,
                chunk_tree_uuid: UUID,
                generation: Transid(2),
            },
            free: places.map(Logical).collect(),
            retired: Vec::new(),
            pinned: Vec::new(),
        }
    }

    /// Creates an empty, committed tree.
    pub(crate) fn tree(&mut self, tree: RootId) -> Arc<LiveTree> {
        let leaf = OpenLeaf::new(NODESIZE as usize);
        let format = self.format.clone();
        let ptr = format.emit_leaf(tree, leaf, self).unwrap();
        self.write_staged();
        let root = CommittedRoot {
            tree,
            bytenr: Logical(ptr.blockptr.get()),
            level: 0,
            generation: Some(format.generation),
        };
        LiveTree::new(Arc::clone(&self.store), root)
    }

    /// Completes a commit after a freeze: writes a new root with the frozen changes and publishes it.
    pub(crate) fn commit(&mut self, tree: &LiveTree) {
        self.commit_with(tree, &[]);
    }

    /// Commits like [`TestVolume::commit`], plus items that no operation has edited.
    pub(crate) fn commit_with(&mut self, tree: &LiveTree, own: &[(Key, &[u8])]) {
        self.format.generation.0 += 1;
        let mut root = tree.committed();
        if let Some(frozen) = tree.frozen() {
            let format = self.format.clone();
            root = apply(&format, &root, &frozen.changes(), self).unwrap();
        }
        if !own.is_empty() {
            let format = self.format.clone();
            let own: Vec<Change<'_>> = own
                .iter()
                .map(|(key, value)| Change::from((*key, Some(*value))))
                .collect();
            root = apply(&format, &root, &own, self).unwrap();
        }
        self.write_staged();
        tree.publish(root);
        let epoch = self.store.next_epoch();
        self.pinned.push((epoch, std::mem::take(&mut self.retired)));
        while let Some((epoch, _)) = self.pinned.first()
            && Arc::strong_count(epoch) == 1
        {
            let (_, places) = self.pinned.remove(0);
            self.free.extend(places);
        }
    }

    /// Returns the number of epochs that still pin freed blocks.
    pub(crate) fn pinned_epochs(&self) -> usize {
        self.pinned.len()
    }

    /// Writes the blocks that a test has staged.
    pub(crate) fn write_staged(&self) {
        write_staged(&self.store, self.device.as_ref());
    }

    /// Stages and writes `block` during the device's next read, before that read returns.
    pub(crate) fn write_in_next_read(&self, block: TreeBlock) {
        let (store, device) = (Arc::clone(&self.store), Arc::downgrade(&self.device));
        self.device.after_read.set(move || {
            store.stage(block).unwrap();
            write_staged(&store, device.upgrade().unwrap().as_ref());
        });
    }
}

fn write_staged(store: &NodeStore, device: &dyn BlockDevice) {
    for block in store.staged() {
        let place = block.node().bytenr();
        device.write_at(block.bytes(), place.0).unwrap();
    }
    store.cache_all_written();
}

impl BlockSink for TestVolume {
    type Error = CommitError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, CommitError> {
        Ok(self.free.pop().expect("the tests' volume is large enough"))
    }

    fn emit(&mut self, block: TreeBlock) -> Result<(), CommitError> {
        self.store.stage(block)?;
        Ok(())
    }
}

impl ApplyIo for TestVolume {
    fn read(&mut self, expect: &Expect) -> Result<Block, CommitError> {
        Ok(self.store.read(TREE, expect)?)
    }

    fn retire(&mut self, old: &Block) -> Result<(), CommitError> {
        let place = old.node().bytenr();
        if self.store.unstage(place) {
            self.free.push(place);
        } else {
            self.store.forget(place);
            self.retired.push(place);
        }
        Ok(())
    }
}

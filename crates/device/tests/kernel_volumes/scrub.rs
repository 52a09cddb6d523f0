//! Reads every tree block and every checksummed sector from every mirror.
//!
//! It has its own tree reader, which is as simple as possible: it recurses and caches nothing.

use ubtrfs_device::Pool;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{Chunk, DevItem, RootItem};
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;
use zerocopy::FromBytes;

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) blocks: usize,
    pub(crate) sectors: usize,
    /// Number of valid reads from mirrors after the first.
    pub(crate) mirrors_compared: usize,
    pub(crate) bad: Vec<String>,
    /// Mirrors that could not be read.
    pub(crate) unread: Vec<String>,
    /// The last address read.
    pub(crate) last: Logical,
}

pub(crate) struct Scrub<'a> {
    pool: &'a Pool,
    csum: CsumType,
    sector: usize,
    seen: Seen,
}

type Items = Vec<(ubtrfs_format::key::Key, Vec<u8>)>;

impl<'a> Scrub<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        let superblock = pool.superblock();
        Self {
            pool,
            csum: superblock.csum_type(),
            sector: superblock.sectorsize.get() as usize,
            seen: Seen {
                blocks: 0,
                sectors: 0,
                mirrors_compared: 0,
                bad: Vec::new(),
                unread: Vec::new(),
                last: Logical(0),
            },
        }
    }

    /// Adds the chunk tree to the pool.
    pub(crate) fn load_chunks(&mut self) {
        let superblock = self.pool.superblock();
        let root = Logical(superblock.chunk_root.get());
        let generation = Transid(superblock.chunk_root_generation.get());
        for (key, bytes) in self.items(root, generation) {
            if key.item_type == KeyType::DEV_ITEM {
                let item = DevItem::ref_from_bytes(&bytes).unwrap();
                self.pool.add_dev_item(item).unwrap();
            } else if key.item_type == KeyType::CHUNK_ITEM {
                let (chunk, stripes, _) = Chunk::split(&bytes).unwrap();
                self.pool
                    .add_chunk(Logical(key.offset), chunk, stripes)
                    .unwrap();
            }
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        self.load_chunks();
        let superblock = self.pool.superblock();
        let root = Logical(superblock.root.get());
        for (key, bytes) in self.items(root, superblock.transid()) {
            if key.item_type != KeyType::ROOT_ITEM {
                continue;
            }
            let tree = RootItem::decode(&bytes).unwrap();
            let items = self.items(tree.bytenr(), tree.transid());
            if key.objectid != RootId::CSUM_TREE.0 {
                continue;
            }
            for (key, sums) in items {
                if key.objectid == objectid::EXTENT_CSUM {
                    self.data(Logical(key.offset), &sums);
                }
            }
        }
        self.seen
    }

    fn items(&mut self, block: Logical, generation: Transid) -> Items {
        let bytes = self.block(block, generation);
        let node = Node::new(&bytes).unwrap();
        if node.is_leaf() {
            return node
                .items()
                .map(|(key, item)| (key, item.to_vec()))
                .collect();
        }
        let children = node
            .ptrs()
            .iter()
            .map(|ptr| (Logical(ptr.blockptr.get()), Transid(ptr.generation.get())));
        children
            .flat_map(|(child, generation)| self.items(child, generation))
            .collect()
    }

    fn block(&mut self, logical: Logical, generation: Transid) -> Vec<u8> {
        let mut block = vec![0; self.pool.superblock().nodesize.get() as usize];
        let csum = self.csum;
        let mut good = |_: usize, bytes: &[u8]| {
            let named =
                |node: Node<'_>| node.bytenr() == logical && node.generation() == generation;
            csum.verify_block(bytes).is_ok() && Node::new(bytes).is_some_and(named)
        };
        let len = block.len();
        self.pool
            .read_checked(logical, &mut block, len, &mut good)
            .unwrap();
        self.compare_mirrors(logical, &block);
        self.seen.blocks += 1;
        block
    }

    fn data(&mut self, logical: Logical, sums: &[u8]) {
        let (csum, sector) = (self.csum, self.sector);
        let sums: Vec<&[u8]> = sums.chunks_exact(csum.size_bytes()).collect();
        let mut data = vec![0; sums.len() * sector];
        let mut good =
            |index: usize, bytes: &[u8]| csum.compute(bytes).significant(csum) == sums[index];
        self.pool
            .read_checked(logical, &mut data, sector, &mut good)
            .unwrap();
        self.compare_mirrors(logical, &data);
        self.seen.sectors += sums.len();
    }

    fn compare_mirrors(&mut self, logical: Logical, wanted: &[u8]) {
        self.seen.last = logical;
        let mut bytes = vec![0; wanted.len()];
        for mirror in 1..=self.pool.mirrors(logical).unwrap() {
            match self.pool.read_mirror(logical, &mut bytes, mirror) {
                Ok(()) if bytes == wanted => self.seen.mirrors_compared += usize::from(mirror > 1),
                Ok(()) => self
                    .seen
                    .bad
                    .push(format!("{logical} mirror {mirror} differs")),
                Err(error) => self
                    .seen
                    .unread
                    .push(format!("{logical} mirror {mirror}: {error}")),
            }
        }
    }
}

//! Many rounds of random changes, compared with a model of each extent's references.

use std::collections::BTreeMap;

use ubtrfs_format::ids::{InodeNr, Logical, RootId, Transid};
use ubtrfs_format::item::{ExtentFlags, TreeBlockInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::{Rng, seed};

use super::tree::{BLOCK_GROUP, Decoded, NOW, TestTree, colliding_offsets, extents, file};
use crate::error::{ExtentShape, RefKey};
use crate::transaction::delayed_refs::DelayedRefs;
use crate::transaction::extent_items::{ExtentBatch, Freed, FreedKind, Used};

const FIRST_KEY: Key = Key::new(256, KeyType::INODE_ITEM, 0);
const PLACES: u64 = 24;

#[derive(Clone, Debug)]
struct Extent {
    shape: ExtentShape,
    full_backref: bool,
    refs: BTreeMap<RefKey, u64>,
}

struct World {
    tree: TestTree,
    model: BTreeMap<Logical, Extent>,
    /// Whether references are mostly added or mostly dropped, by extent.
    growing: BTreeMap<Logical, bool>,
    /// The keyed references.
    keyed: BTreeMap<Logical, Vec<RefKey>>,
    collisions: Vec<u64>,
    rng: Rng,
}

impl World {
    fn new(nodesize: usize, skinny: bool, rng: Rng) -> World {
        World {
            tree: TestTree::new(nodesize, skinny),
            model: BTreeMap::new(),
            growing: BTreeMap::new(),
            keyed: BTreeMap::new(),
            collisions: colliding_offsets(60),
            rng,
        }
    }

    fn len(&self, shape: ExtentShape) -> u64 {
        match shape {
            ExtentShape::Data { len } => len,
            ExtentShape::Block { .. } => self.tree.context.nodesize as u64,
        }
    }

    fn reference(&mut self, shape: ExtentShape) -> RefKey {
        let parent = Logical(self.rng.below(150) << 16);
        match (shape, self.rng.below(4)) {
            (ExtentShape::Data { .. }, 0) => RefKey::DataParent(parent),
            (ExtentShape::Data { .. }, 1) => {
                let at = self.rng.below(self.collisions.len() as u64);
                file(257, self.collisions[at as usize])
            }
            (ExtentShape::Data { .. }, _) => RefKey::DataRoot {
                root: RootId(256 + self.rng.below(3)),
                ino: InodeNr(257 + self.rng.below(40)),
                offset: self.rng.below(4).wrapping_sub(2) << 12,
            },
            (ExtentShape::Block { .. }, 0 | 1) => RefKey::TreeParent(parent),
            (ExtentShape::Block { .. }, _) => RefKey::TreeRoot(RootId(256 + self.rng.below(300))),
        }
    }

    fn make(&mut self, at: Logical, refs: &mut DelayedRefs) {
        let is_data = self.rng.one_in(2);
        let mut extent = Extent {
            shape: if is_data {
                ExtentShape::Data {
                    len: (1 + self.rng.below(8)) << 12,
                }
            } else {
                ExtentShape::Block {
                    level: self.rng.below(8) as u8,
                }
            },
            full_backref: false,
            refs: BTreeMap::new(),
        };
        match extent.shape {
            ExtentShape::Data { len } => refs.new_data(at, len),
            ExtentShape::Block { level } => {
                let owner = RootId::FS_TREE;
                let reference = RefKey::TreeRoot(owner);
                refs.new_block(at, level, owner, reference, FIRST_KEY);
                extent.refs.insert(reference, 1);
            }
        }
        self.growing.insert(at, true);
        self.model.insert(at, extent);
    }

    fn held(&mut self, at: Logical) -> Option<RefKey> {
        let held = &self.model[&at].refs;
        let slot = self.rng.below(held.len().max(1) as u64);
        held.keys().nth(slot as usize).copied()
    }

    /// Makes one change that the model permits.
    fn change(&mut self, at: Logical, refs: &mut DelayedRefs) {
        let shape = self.model[&at].shape;
        let (len, level) = match shape {
            ExtentShape::Data { len } => (len, None),
            ExtentShape::Block { level } => (self.len(shape), Some(level)),
        };
        let adds = self.growing[&at] != self.rng.one_in(5);
        let reference = if adds {
            Some(self.reference(shape))
        } else {
            self.held(at)
        };
        let Some(reference) = reference else { return };
        let extent = self.model.get_mut(&at).unwrap();
        let count = extent.refs.entry(reference).or_default();
        let delta = match (adds, level) {
            (true, Some(_)) if *count > 0 => return,
            (true, Some(_)) => 1,
            (true, None) => 1 + self.rng.below(3) as i64,
            (false, _) if self.rng.one_in(2) => -(*count as i64),
            (false, _) => -(1 + self.rng.below(*count) as i64),
        };
        *count = count.checked_add_signed(delta).unwrap();
        if *count == 0 {
            extent.refs.remove(&reference);
        }
        refs.change(at, len, reference, delta, level);
    }

    /// Drops the references in `these` that the extent has.
    fn drop_refs(&mut self, at: Logical, these: Vec<RefKey>, refs: &mut DelayedRefs) {
        let shape = self.model[&at].shape;
        let len = self.len(shape);
        let extent = self.model.get_mut(&at).unwrap();
        let level = match shape {
            ExtentShape::Data { .. } => None,
            ExtentShape::Block { level } => Some(level),
        };
        for reference in these {
            if let Some(count) = extent.refs.remove(&reference) {
                refs.change(at, len, reference, -(count as i64), level);
            }
        }
    }

    fn drop_all(&mut self, at: Logical, refs: &mut DelayedRefs) {
        let all = self.model[&at].refs.keys().copied().collect();
        self.drop_refs(at, all, refs);
    }

    fn round(&mut self) {
        let before = self.model.clone();
        let mut refs = DelayedRefs::default();
        for place in 0..PLACES {
            let at = Logical((place + 1) << 20);
            if !self.model.contains_key(&at) {
                if !self.rng.one_in(2) {
                    continue;
                }
                self.make(at, &mut refs);
            }
            if self.rng.one_in(12) {
                let growing = !self.growing[&at];
                self.growing.insert(at, growing);
            }
            // Larger nodes hold more inline references.
            let most = 50 + self.tree.context.nodesize as u64 / 512;
            let spilled = self.keyed.remove(&at).unwrap_or_default();
            match self.rng.below(25) {
                0 => self.drop_all(at, &mut refs),
                1 | 2 => self.drop_refs(at, spilled, &mut refs),
                _ => {
                    for _ in 0..self.rng.below(most) {
                        self.change(at, &mut refs);
                    }
                }
            }
            let extent = self.model.get_mut(&at).unwrap();
            if let ExtentShape::Block { level } = extent.shape
                && !extent.full_backref
                && self.rng.one_in(4)
            {
                extent.full_backref = true;
                refs.set_full_backref(at, level);
            }
        }
        self.check_pending(&before, &refs);
        let batch = self.tree.run(refs).unwrap();
        self.check_space(&before, &batch);
        self.model.retain(|_, extent| !extent.refs.is_empty());
        self.check_items(&before);
    }

    /// Checks that the committed counts plus the pending changes equal the model's counts.
    fn check_pending(&self, before: &BTreeMap<Logical, Extent>, refs: &DelayedRefs) {
        let count = |extent: Option<&Extent>| {
            extent.map_or(0, |extent| extent.refs.values().sum::<u64>() as i64)
        };
        for (at, extent) in &self.model {
            let pending = refs.pending(*at);
            let delta = pending.map_or(0, |pending| pending.refs);
            assert_eq!(count(before.get(at)) + delta, count(Some(extent)), "{at}");
            let is_new = pending.is_some_and(|pending| pending.is_new);
            assert_eq!(is_new, !before.contains_key(at), "{at}");
        }
    }

    fn check_space(&self, before: &BTreeMap<Logical, Extent>, batch: &ExtentBatch) {
        let (mut used, mut freed) = (Vec::new(), Vec::new());
        for (at, extent) in &self.model {
            let (start, len) = (*at, self.len(extent.shape));
            let had_item = before.contains_key(at);
            if extent.refs.is_empty() {
                freed.push((start, len, had_item));
            } else if !had_item {
                let is_data = matches!(extent.shape, ExtentShape::Data { .. });
                used.push(Used {
                    start,
                    len,
                    is_data,
                });
            }
        }
        assert_eq!(batch.used, used);
        let found: Vec<_> = batch
            .freed
            .iter()
            .map(|freed| (freed.start, freed.len, freed.had_item))
            .collect();
        assert_eq!(found, freed);
        for Freed { start, kind, .. } in &batch.freed {
            match (kind, self.model[start].shape) {
                (FreedKind::Data, ExtentShape::Data { .. }) => {}
                (FreedKind::Block { level, .. }, ExtentShape::Block { level: wanted }) => {
                    assert_eq!(*level, wanted);
                }
                (kind, shape) => panic!("{shape} freed as {kind:?}"),
            }
        }
    }

    fn check_items(&self, before: &BTreeMap<Logical, Extent>) {
        let found = extents(&self.tree.items);
        assert!(found.keys().eq(self.model.keys()));
        let context = &self.tree.context;
        for (at, extent) in &self.model {
            let decoded = &found[at];
            assert_eq!(decoded.counts(), extent.refs, "{at}");
            assert_eq!(decoded.refs, extent.refs.values().sum::<u64>(), "EXTENT-1");
            let item_len = self.tree.items[&decoded.key].len();
            assert!(item_len < context.item_limit(), "{item_len} bytes");
            let is_skinny = context.skinny_metadata;
            let (item_type, offset, mut flags) = match extent.shape {
                ExtentShape::Data { len } => (KeyType::EXTENT_ITEM, len, ExtentFlags::DATA),
                ExtentShape::Block { level } if is_skinny => {
                    let level = u64::from(level);
                    (KeyType::METADATA_ITEM, level, ExtentFlags::TREE_BLOCK)
                }
                ExtentShape::Block { .. } => {
                    let len = context.nodesize as u64;
                    (KeyType::EXTENT_ITEM, len, ExtentFlags::TREE_BLOCK)
                }
            };
            flags.set(ExtentFlags::FULL_BACKREF, extent.full_backref);
            assert_eq!(decoded.key, Key::new(at.0, item_type, offset));
            assert_eq!(decoded.flags, flags);
            let info = match extent.shape {
                ExtentShape::Block { level } if !is_skinny => Some(TreeBlockInfo {
                    key: FIRST_KEY.into(),
                    level,
                }),
                _ => None,
            };
            assert_eq!(decoded.info, info);
            let made = if before.contains_key(at) {
                decoded.generation
            } else {
                self.tree.context.transid
            };
            assert_eq!(decoded.generation, made);
        }
    }
}

fn rounds(nodesize: usize) {
    let seed = seed(&format!("references in nodes of {nodesize}"));
    for skinny in [true, false] {
        let mut world = World::new(nodesize, skinny, Rng::new(seed));
        let (mut most, mut came_back) = (0, false);
        for round in 0..30 {
            let before = world.keyed.clone();
            world.tree.context.transid = Transid(NOW.0 - round % 2);
            world.round();
            world.keyed = keyed(&world);
            most = world
                .keyed
                .values()
                .map(Vec::len)
                .max()
                .unwrap_or(0)
                .max(most);
            came_back |= world
                .keyed
                .iter()
                .any(|(at, now)| now.is_empty() && before.get(at).is_some_and(|b| !b.is_empty()));
        }
        assert!(most > 20, "{most} references spilled");
        assert!(came_back, "all spilled references of an extent went");
        let mut refs = DelayedRefs::default();
        let places: Vec<Logical> = world.model.keys().copied().collect();
        for at in places {
            world.drop_all(at, &mut refs);
        }
        world.tree.run(refs).unwrap();
        assert!(world.tree.items.keys().eq(&[BLOCK_GROUP]), "EXTENT-2");
    }
}

fn keyed(world: &World) -> BTreeMap<Logical, Vec<RefKey>> {
    let extents = extents(&world.tree.items).into_iter();
    let keyed = |extent: Decoded| extent.keyed.iter().map(|(_, found, _)| *found).collect();
    extents.map(|(at, extent)| (at, keyed(extent))).collect()
}

#[test]
fn random_changes_follow_the_model_in_nodes_of_4_kib() {
    rounds(4096);
}

#[test]
fn random_changes_follow_the_model_in_nodes_of_8_kib() {
    rounds(8192);
}

#[test]
fn random_changes_follow_the_model_in_nodes_of_16_kib() {
    rounds(16_384);
}

#[test]
fn random_changes_follow_the_model_in_nodes_of_32_kib() {
    rounds(32_768);
}

#[test]
fn random_changes_follow_the_model_in_nodes_of_64_kib() {
    rounds(65_536);
}

//! The root tree: the existing trees, and the references between subvolumes.
//!
//! Not here: the directory entries of subvolumes, which are read with the files (`root_links` compares them).

use std::collections::{BTreeMap, BTreeSet};

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{DirEntries, RootItem, RootRef};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::root_entry::RootEntry;
use crate::root_links::{Link, RootLinks};
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::walk;

/// Maps uuid and kind of entry to the subvolumes with it.
pub(crate) type UuidMap = BTreeMap<(Uuid, KeyType), Vec<u64>>;

/// Trees whose root items the kernel expects at offset 0.
const FOUND_AT_0: [RootId; 7] = [
    RootId::EXTENT_TREE,
    RootId::DEV_TREE,
    RootId::CSUM_TREE,
    RootId::FREE_SPACE_TREE,
    RootId::BLOCK_GROUP_TREE,
    RootId::UUID_TREE,
    RootId::QUOTA_TREE,
];

/// The contents of the root tree.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    /// In key order.
    pub(crate) entries: Vec<RootEntry>,
    orphans: BTreeSet<u64>,
    /// Inodes of the root tree itself: its directory and version 1 free-space caches.
    inodes: BTreeSet<u64>,
    default_subvolume: Option<u64>,
    /// Subvolumes with a ROOT_BACKREF.
    with_backref: BTreeSet<u64>,
}

impl Roots {
    pub(crate) fn find(&self, id: RootId) -> Option<&RootEntry> {
        let from = self.entries.partition_point(|e| e.key.objectid < id.0);
        self.entries.get(from).filter(|entry| entry.id() == id)
    }

    pub(crate) fn tree_root(&self, id: RootId) -> Option<TreeRoot> {
        Some(self.find(id)?.tree_root())
    }

    /// Reads the root tree.
    pub(crate) fn read(
        state: &mut State<'_>,
        volume: &CheckedVolume,
        links: &mut RootLinks,
    ) -> Result<Roots, CheckError> {
        let mut roots = Roots::default();
        let mut reader = RootReader {
            state,
            roots: &mut roots,
            links,
            root_dir: match volume.superblock().root_dir_objectid.get() {
                0 => objectid::ROOT_TREE_DIR,
                dir => dir,
            },
        };
        walk(volume, &[volume.tree_root()], &mut reader)?;
        Ok(roots)
    }

    /// Checks the root tree by itself.
    pub(crate) fn check(&self, state: &mut State<'_>, volume: &CheckedVolume) {
        state.report.has_quotas = self.find(RootId::QUOTA_TREE).is_some();
        self.check_required(state, volume);
        for entry in &self.entries {
            self.check_entry(state, entry);
        }
        let lost = state.has_lost(RootId::ROOT_TREE);
        for &orphan in &self.orphans {
            let known = self.find(RootId(orphan)).is_some() || self.inodes.contains(&orphan);
            if !known {
                let key = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, orphan);
                let at = Place::item(RootId::ROOT_TREE, key);
                state.add_unless(lost, at, Fault::OrphanWithoutRoot {});
            }
        }
        if let Some(target) = self.default_subvolume
            && self.find(RootId(target)).is_none()
        {
            let at = Place::tree(RootId::ROOT_TREE);
            state.add_unless(lost, at, Fault::DefaultSubvolume { target });
        }
    }

    fn check_required(&self, state: &mut State<'_>, volume: &CheckedVolume) {
        let mut required = vec![
            RootId::EXTENT_TREE,
            RootId::DEV_TREE,
            RootId::FS_TREE,
            RootId::CSUM_TREE,
        ];
        let features = volume.superblock().compat_ro();
        if features.contains(CompatRo::FREE_SPACE_TREE) {
            required.push(RootId::FREE_SPACE_TREE);
        }
        if features.contains(CompatRo::BLOCK_GROUP_TREE) {
            required.push(RootId::BLOCK_GROUP_TREE);
        }
        for tree in required {
            if self.find(tree).is_none() {
                let lost = state.may_have_lost(RootId::ROOT_TREE, tree.0);
                state.add_unless(lost, Place::tree(tree), Fault::TreeMissing {});
            }
        }
    }

    fn check_entry(&self, state: &mut State<'_>, entry: &RootEntry) {
        let id = entry.id();
        let at = Place::item(RootId::ROOT_TREE, entry.key);
        let offset = entry.key.offset;
        if offset != 0 && FOUND_AT_0.contains(&id) {
            state.add(at, Fault::RootItemOffset { offset });
        }
        if entry.is_deleted() && !self.orphans.contains(&id.0) {
            let lost = state.may_have_lost(RootId::ROOT_TREE, objectid::ORPHAN);
            state.add_unless(lost, at, Fault::DeletedWithoutOrphan {});
        }
        let is_nested = id.is_subvolume() && id != RootId::FS_TREE && entry.refs > 0;
        if is_nested && !self.with_backref.contains(&id.0) {
            let lost = state.may_have_lost(RootId::ROOT_TREE, id.0);
            let fault = Fault::SubvolumeUnreferenced { refs: entry.refs };
            state.add_unless(lost, at, fault);
        }
    }

    /// Returns all file trees. Subvolumes that are being deleted are last, so that a shared leaf is first read in a
    /// complete subvolume.
    pub(crate) fn file_trees(&self) -> Vec<RootEntry> {
        let is_file_tree = |entry: &&RootEntry| entry.id().holds_files();
        let mut trees: Vec<RootEntry> = self.entries.iter().filter(is_file_tree).copied().collect();
        trees.sort_by_key(|entry| entry.is_deleted());
        trees
    }

    /// Returns the trees that neither contain files nor have their own phase.
    pub(crate) fn other_trees(&self) -> Vec<TreeRoot> {
        const READ_ELSEWHERE: [RootId; 7] = [
            RootId::TREE_RELOC,
            RootId::UUID_TREE,
            RootId::EXTENT_TREE,
            RootId::DEV_TREE,
            RootId::CSUM_TREE,
            RootId::FREE_SPACE_TREE,
            RootId::BLOCK_GROUP_TREE,
        ];
        self.entries
            .iter()
            .filter(|entry| !entry.id().holds_files() && !READ_ELSEWHERE.contains(&entry.id()))
            .map(RootEntry::tree_root)
            .collect()
    }

    /// Returns the trees of a running balance: copies of subvolumes, which share leaves with these.
    pub(crate) fn relocation_trees(&self) -> Vec<TreeRoot> {
        let entries = self.entries.iter();
        let relocated = entries.filter(|entry| entry.id() == RootId::TREE_RELOC);
        relocated.map(RootEntry::tree_root).collect()
    }

    /// Returns the expected contents of the UUID tree: uuid and kind to the subvolumes with it.
    pub(crate) fn uuids(&self) -> UuidMap {
        let mut uuids = UuidMap::new();
        let nil = Uuid::default();
        for entry in &self.entries {
            if !entry.id().is_subvolume() || entry.refs == 0 {
                continue;
            }
            for (uuid, kind) in [
                (entry.uuid, KeyType::UUID_KEY_SUBVOL),
                (entry.received_uuid, KeyType::UUID_KEY_RECEIVED_SUBVOL),
            ] {
                if uuid != nil {
                    uuids.entry((uuid, kind)).or_default().push(entry.id().0);
                }
            }
        }
        uuids
    }

    /// Returns the existing trees by id.
    pub(crate) fn by_id(&self) -> BTreeMap<u64, &RootEntry> {
        self.entries.iter().map(|e| (e.key.objectid, e)).collect()
    }
}

struct RootReader<'s, 'a> {
    state: &'s mut State<'a>,
    roots: &'s mut Roots,
    links: &'s mut RootLinks,
    root_dir: u64,
}

impl<'a> ItemReader<'a> for RootReader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        match key.item_type {
            KeyType::ROOT_ITEM => {
                if let Some(item) = RootItem::decode(bytes) {
                    self.roots.entries.push(RootEntry::new(key, &item));
                }
            }
            KeyType::ROOT_REF | KeyType::ROOT_BACKREF => {
                let Some(root_ref) = RootRef::decode(bytes) else {
                    return Ok(());
                };
                let is_ref = key.item_type == KeyType::ROOT_REF;
                let (parent, child, link) = if is_ref {
                    (key.objectid, key.offset, Link::Ref)
                } else {
                    (key.offset, key.objectid, Link::Backref)
                };
                if !is_ref {
                    self.roots.with_backref.insert(child);
                }
                let place = (parent, root_ref.dirid, root_ref.name);
                self.links.add(child, place, link, root_ref.sequence)?;
            }
            KeyType::ORPHAN_ITEM => {
                self.roots.orphans.insert(key.offset);
            }
            KeyType::INODE_ITEM => {
                self.roots.inodes.insert(key.objectid);
            }
            KeyType::DIR_ITEM if key.objectid == self.root_dir => {
                let mut entries = DirEntries::new(bytes);
                if let Some(entry) = entries.find(|entry| entry.name == b"default") {
                    self.roots.default_subvolume = Some(entry.location().objectid);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

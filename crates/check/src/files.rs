//! Files and directories of each subvolume, in order of inode numbers.
//!
//! All items of an inode are adjacent, so that only one inode is in memory at a time (`inode`). Names are stored both
//! in the directory and with the inode: they are compared as sums first (`names`).
//!
//! Leaves that are shared between subvolumes are checked once for each, because their meaning depends on the
//! neighbouring items. Their extents are counted once.

mod inode;
mod names;
mod orphans;

use std::collections::HashSet;

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, RootId, objectid};
use ubtrfs_format::item::{
    DirEntries, DirEntry, FileExtent, InodeExtrefs, InodeItem, InodeRefs, RefEntry,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use zerocopy::FromBytes;

use crate::csums::Expectations;
use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::root_entry::RootEntry;
use crate::root_links::{Link, RootLinks};
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, Visited, Visitor, walk};

pub(crate) use inode::Inode;
use names::{Name, NameSums};
use orphans::Orphans;

/// Reads all trees that contain files.
pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    trees: &[RootEntry],
    links: &mut RootLinks,
    expectations: &mut Expectations,
) -> Result<(), CheckError> {
    let roots: Vec<TreeRoot> = trees.iter().map(RootEntry::tree_root).collect();
    let mut reader = FileReader {
        volume,
        rules: Rules::of(volume),
        deleted: trees
            .iter()
            .filter(|e| e.is_deleted())
            .map(|e| e.id())
            .collect(),
        is_deleted: false,
        has_root_dir: false,
        inode: None,
        orphans: Orphans::new(state.sorter()),
        names: NameSums::new(),
        state,
        links,
        expectations,
    };
    walk(volume, &roots, &mut reader)
}

/// The rules for all files of the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    no_holes: bool,
    sectorsize: u64,
    pub(crate) nodesize: usize,
    /// The highest valid generation of an extent, which is the running transaction's.
    pub(crate) generation: u64,
    /// The volume was restored from a metadata dump, which may have scrambled names.
    is_dump: bool,
}

impl Rules {
    pub(crate) fn of(volume: &CheckedVolume) -> Rules {
        let superblock = volume.superblock();
        Rules {
            no_holes: superblock.incompat().contains(Incompat::NO_HOLES),
            sectorsize: u64::from(volume.sectorsize()),
            nodesize: superblock.nodesize.get() as usize,
            generation: superblock.generation.get().saturating_add(1),
            is_dump: volume.context().scrambled_names,
        }
    }
}

struct FileReader<'s, 'a> {
    state: &'s mut State<'a>,
    volume: &'s CheckedVolume,
    links: &'s mut RootLinks,
    expectations: &'s mut Expectations,
    rules: Rules,
    deleted: std::collections::BTreeSet<RootId>,
    /// Whether the tree is being deleted; then only its extents are checked.
    is_deleted: bool,
    has_root_dir: bool,
    inode: Option<Inode>,
    orphans: Orphans,
    names: NameSums,
}

impl Visitor for FileReader<'_, '_> {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.is_deleted = self.deleted.contains(&root.tree);
        self.has_root_dir = false;
        self.inode = None;
        self.names.clear();
        self.orphans = Orphans::new(self.state.sorter());
        self.state.enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        let is_new = self.state.enter_block(root, block)?;
        for (key, bytes) in block.node.items() {
            self.item(root, key, bytes, is_new)?;
        }
        Ok(())
    }

    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        self.state.lose(lost);
        Ok(())
    }

    fn end(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        if self.is_deleted {
            return Ok(());
        }
        self.finish_inode(root)?;
        self.orphans.end(self.state, root.tree)?;
        if !self.has_root_dir {
            let lost = self.state.may_have_lost(root.tree, InodeNr::FIRST_FREE.0);
            self.state
                .add_unless(lost, Place::tree(root.tree), Fault::RootDirMissing {});
        }
        if self.names.all_equal() {
            return Ok(());
        }
        names::find_faults(self.state, self.volume, root, &self.names)
    }
}

impl FileReader<'_, '_> {
    fn item(
        &mut self,
        root: &TreeRoot,
        key: Key,
        bytes: &[u8],
        is_new: bool,
    ) -> Result<(), CheckError> {
        if self.is_deleted {
            if is_new && key.item_type == KeyType::EXTENT_DATA {
                self.expect_csums(root, bytes)?;
            }
            return Ok(());
        }
        if !is_inode(key.objectid) {
            self.finish_inode(root)?;
            self.check_cache(root, key);
            if (key.objectid, key.item_type) == (objectid::ORPHAN, KeyType::ORPHAN_ITEM) {
                self.orphans
                    .orphan(self.state, self.volume, root, key.offset)?;
            }
            return Ok(());
        }
        if self
            .inode
            .as_ref()
            .is_none_or(|inode| inode.number != key.objectid)
        {
            self.finish_inode(root)?;
            self.inode = Some(Inode::new(key.objectid));
        }
        let Some(inode) = &mut self.inode else {
            return Ok(());
        };
        match key.item_type {
            KeyType::INODE_ITEM => {
                if let Ok(item) = InodeItem::ref_from_bytes(bytes) {
                    inode.item = Some(inode::ItemFields::new(item));
                }
            }
            KeyType::INODE_REF => {
                for entry in InodeRefs::new(bytes) {
                    inode.names += 1;
                    if is_root_ref(key, &entry) {
                        continue;
                    }
                    self.names.add(&Name::Ref {
                        dir: key.offset,
                        child: key.objectid,
                        index: entry.index,
                        kind: inode.kind(),
                        name: entry.name,
                    });
                }
            }
            KeyType::INODE_EXTREF => {
                for entry in InodeExtrefs::new(bytes) {
                    inode.names += 1;
                    self.names.add(&Name::Ref {
                        dir: entry.parent,
                        child: key.objectid,
                        index: entry.index,
                        kind: inode.kind(),
                        name: entry.name,
                    });
                }
            }
            KeyType::DIR_ITEM | KeyType::DIR_INDEX => self.entries(root, key, bytes)?,
            KeyType::EXTENT_DATA => self.extent(root, key, bytes, is_new)?,
            _ => {}
        }
        Ok(())
    }

    fn entries(&mut self, root: &TreeRoot, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        let is_item = key.item_type == KeyType::DIR_ITEM;
        if is_item {
            self.compare_names(root, key, bytes);
        }
        for entry in DirEntries::new(bytes) {
            if let Some(inode) = &mut self.inode {
                inode.has_entries = true;
                inode.entries_bytes += entry.name.len() as u64;
            }
            let dir = key.objectid;
            if entry.location().item_type == KeyType::ROOT_ITEM {
                let child = entry.location().objectid;
                let place = (root.tree.0, dir, entry.name);
                let (link, index) = if is_item {
                    (Link::DirItem, 0)
                } else {
                    (Link::DirIndex, key.offset)
                };
                self.links.add(child, place, link, index)?;
                continue;
            }
            let child = names::child_of(entry.location());
            let (kind, name) = (entry.head.type_, entry.name);
            let name = if is_item {
                Name::Item {
                    dir,
                    child,
                    kind,
                    name,
                }
            } else {
                Name::Index {
                    dir,
                    child,
                    index: key.offset,
                    kind,
                    name,
                }
            };
            self.names.add(&name);
        }
        Ok(())
    }

    /// Reports a subvolume's inode cache, which old kernels wrote, by its inode.
    fn check_cache(&mut self, root: &TreeRoot, key: Key) {
        if (key.objectid, key.item_type) == (objectid::FREE_INO, KeyType::INODE_ITEM) {
            let at = Place::item(root.tree, key);
            self.state.add(at, Fault::InodeCache {});
        }
    }

    /// Checks that the names of one DIR_ITEM are distinct. Equal names have equal hashes, so that duplicates are in
    /// the same item.
    fn compare_names(&mut self, root: &TreeRoot, key: Key, bytes: &[u8]) {
        let mut entries = DirEntries::new(bytes);
        let Some(first) = entries.next() else { return };
        let at = Place::item(root.tree, key);
        if self.rules.is_dump {
            let index = key.offset;
            let wrong = |entry: &DirEntry<'_>| u64::from(name_hash(entry.name)) != index;
            let all = DirEntries::new(bytes);
            for _ in all.filter(wrong) {
                self.state.add(at, Fault::NameHash { index });
            }
        }
        if entries.rest().is_empty() {
            return;
        }
        let mut seen = HashSet::from([first.name]);
        for entry in entries {
            if !seen.insert(entry.name) {
                let inode = entry.location().objectid;
                self.state.add(at, Fault::EntryTwice { inode, index: 0 });
            }
        }
    }

    fn extent(
        &mut self,
        root: &TreeRoot,
        key: Key,
        bytes: &[u8],
        is_new: bool,
    ) -> Result<(), CheckError> {
        let Some(inode) = &mut self.inode else {
            return Ok(());
        };
        if let Some(extent) = FileExtent::decode(bytes)
            && let Err(fault) = inode.add_extent(key.offset, &extent, self.rules)
        {
            self.state.add(Place::item(root.tree, key), fault);
        }
        if inode.is_unsummed() && is_compressed(bytes) {
            let at = Place::item(root.tree, key);
            self.state.add(at, Fault::CompressedNodatasum {});
        }
        if is_new {
            self.expect_csums(root, bytes)?;
        }
        Ok(())
    }

    fn expect_csums(&mut self, root: &TreeRoot, bytes: &[u8]) -> Result<(), CheckError> {
        let Some(FileExtent::Regular {
            head,
            body,
            prealloc,
        }) = FileExtent::decode(bytes)
        else {
            return Ok(());
        };
        // Data being relocated still has the checksums of its old address.
        let is_telling = !self.is_deleted && root.tree != RootId::DATA_RELOC_TREE;
        let flags = match (&self.inode, is_telling) {
            (Some(inode), true) => inode.item.map(|item| item.flags),
            _ => None,
        };
        self.expectations.add(head, body, prealloc, flags)
    }

    fn finish_inode(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        let Some(inode) = self.inode.take() else {
            return Ok(());
        };
        if inode.number == InodeNr::FIRST_FREE.0 {
            self.has_root_dir |= inode.is_dir();
        }
        if inode.is_unlinked() {
            self.orphans.unlinked(inode.number)?;
        }
        let lost = self.state.may_have_lost(root.tree, inode.number);
        let key = Key::new(inode.number, KeyType::INODE_ITEM, 0);
        let at = Place::item(root.tree, key);
        let state = &mut *self.state;
        inode.check(self.rules, &mut |fault| state.add_unless(lost, at, fault));
        Ok(())
    }
}

/// Returns whether it is the root directory's reference to itself, which has no directory entry.
fn is_root_ref(key: Key, entry: &RefEntry<'_>) -> bool {
    let root = InodeNr::FIRST_FREE.0;
    (key.objectid, key.offset) == (root, root) && entry.index == 0 && entry.name == b".."
}

/// Returns whether it is compressed data in a separate extent.
fn is_compressed(bytes: &[u8]) -> bool {
    matches!(
        FileExtent::decode(bytes),
        Some(FileExtent::Regular { head, body, .. })
            if head.compression != 0 && body.disk().is_some()
    )
}

/// Returns whether the objectid is an inode number, as opposed to orphan items or the inode cache of old kernels.
/// Numbers below the first valid inode count as inodes, so that their items are reported as missing one.
fn is_inode(objectid: u64) -> bool {
    objectid <= RootId::LAST_FREE
}

//! Files that may have further names, until all of them were found. A bounded number is kept in memory. Beyond it, all
//! waiting files are moved to a sorter, followed by their later names. At the end, these are sorted together.
//!
//! Invariants
//! - LINKS-1: a file is in memory with all its names so far, or it is in the sorter with all its names.
//!
//! Not here: which names belong to one file (sources know that), the items of a file (`filler`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::{PageRecord, Paged, Paging};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::MkfsError;
use crate::fill::error::FillError;
use crate::fill::hash_table::HashTable;
use crate::fill::inode::Name;
use crate::fill::item_sorter::{ItemSorter, Record};
use crate::fill::scratch::Scratch;
use crate::fill::source::LinkId;

#[cfg(test)]
mod tests;

/// The memory for a file with a name, and for each further name.
const FILE_BYTES: usize = 512;
const PAGE_FILES: usize = 128;

/// A file that may have further names.
#[derive(Debug, PartialEq)]
pub(super) struct Linked {
    pub(super) ino: u64,
    pub(super) inode: InodeItem,
    pub(super) names: Vec<Name>,
    /// Number of names not found yet.
    pub(super) left: u32,
}

pub(super) struct Links {
    held: HashMap<(RootId, LinkId), Linked>,
    held_names: usize,
    most_names: usize,
    put_out: Option<PutOut>,
    scratch: Scratch,
}

struct PutOut {
    files: Paged<Known>,
    by_id: HashTable,
    /// Inodes, and names in the form of items.
    items: ItemSorter,
    record: Record,
}

/// A file in the sorter.
#[derive(Clone, Copy, Debug)]
struct Known {
    tree: RootId,
    id: LinkId,
    ino: u64,
}

impl PageRecord for Known {
    const BYTES: usize = 32;

    fn write(&self, bytes: &mut [u8]) {
        let fields = [self.tree.0, self.id.device, self.id.number, self.ino];
        bytes.copy_from_slice(fields.map(u64::to_le_bytes).as_flattened());
    }

    fn read(bytes: &[u8]) -> Known {
        let mut fields = [0; 4];
        for (field, &place) in fields.iter_mut().zip(bytes.as_chunks().0) {
            *field = u64::from_le_bytes(place);
        }
        let [tree, device, number, ino] = fields;
        Known {
            tree: RootId(tree),
            id: LinkId { device, number },
            ino,
        }
    }
}

fn hash(tree: RootId, id: LinkId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (tree.0, id).hash(&mut hasher);
    hasher.finish()
}

impl Links {
    pub(super) fn new(scratch: &Scratch) -> Links {
        Links {
            held: HashMap::new(),
            held_names: 0,
            most_names: (scratch.memory_bytes / 16 / FILE_BYTES).max(1),
            put_out: None,
            scratch: scratch.clone(),
        }
    }

    /// Returns the inode number of a file that was found before.
    pub(super) fn ino(&self, tree: RootId, id: LinkId) -> Result<Option<u64>, MkfsError> {
        if let Some(linked) = self.held.get(&(tree, id)) {
            return Ok(Some(linked.ino));
        }
        match &self.put_out {
            Some(put_out) => put_out.find(tree, id).map_err(MkfsError::Scratch),
            None => Ok(None),
        }
    }

    /// Adds a file with its first name.
    pub(super) fn add(
        &mut self,
        tree: RootId,
        id: LinkId,
        linked: Linked,
    ) -> Result<(), MkfsError> {
        self.held_names += linked.names.len();
        self.held.insert((tree, id), linked);
        self.put_out_if_full()
    }

    /// Adds another name of a known file. Returns the file if that was its last name.
    pub(super) fn add_name(
        &mut self,
        tree: RootId,
        id: LinkId,
        ino: u64,
        name: Name,
    ) -> Result<Option<Linked>, MkfsError> {
        let Some(linked) = self.held.get_mut(&(tree, id)) else {
            // LINKS-1: the file was moved to the sorter, so its names must follow.
            let put_out = self.put_out.as_mut();
            let put_out = put_out.expect("a visited file is held or written");
            put_out.name(tree, ino, &name)?;
            return Ok(None);
        };
        linked.names.push(name);
        linked.left = linked.left.saturating_sub(1);
        if linked.left > 0 {
            self.held_names += 1;
            self.put_out_if_full()?;
            return Ok(None);
        }
        let linked = self.held.remove(&(tree, id));
        let names = linked.as_ref().map_or(0, |linked| linked.names.len() - 1);
        self.held_names -= names;
        Ok(linked)
    }

    /// Moves all files to the sorter if they have too many names for memory.
    fn put_out_if_full(&mut self) -> Result<(), MkfsError> {
        if self.held_names <= self.most_names {
            return Ok(());
        }
        let put_out = match &mut self.put_out {
            Some(put_out) => put_out,
            None => self.put_out.insert(PutOut::new(&self.scratch)?),
        };
        // LINKS-1
        for ((tree, id), linked) in self.held.drain() {
            put_out.file(tree, id, &linked)?;
        }
        self.held_names = 0;
        Ok(())
    }

    /// Passes all remaining files to `take`. Their last name was not found, or not known to be the last.
    pub(super) fn finish(
        self,
        trees: impl Iterator<Item = RootId>,
        mut take: impl FnMut(RootId, Linked) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        for ((tree, _), linked) in self.held {
            take(tree, linked)?;
        }
        let Some(put_out) = self.put_out else {
            return Ok(());
        };
        let items = put_out.items.finish()?;
        for tree in trees {
            let mut current: Option<Linked> = None;
            let mut outcome = Ok(());
            items.each(tree, &mut |key, data| {
                if outcome.is_err() {
                    return Ok(());
                }
                // Items are sorted by inode, and an INODE_ITEM precedes its names.
                if key.item_type == KeyType::INODE_ITEM {
                    let before = current.replace(linked_of(key, data));
                    if let Some(before) = before {
                        outcome = take(tree, before);
                    }
                } else if let Some(linked) = &mut current {
                    linked.names.extend(name_of(key, data));
                }
                Ok(())
            })?;
            outcome?;
            if let Some(last) = current {
                take(tree, last)?;
            }
        }
        Ok(())
    }
}

impl PutOut {
    fn new(scratch: &Scratch) -> Result<PutOut, MkfsError> {
        let share = scratch.memory_bytes / 16;
        let paging = Paging {
            page_records: PAGE_FILES,
            memory_bytes: share,
        };
        let by_id = HashTable::new(&scratch.dir, share);
        Ok(PutOut {
            files: Paged::new(&scratch.dir, paging),
            by_id: by_id.map_err(MkfsError::Scratch)?,
            items: ItemSorter::new(&scratch.dir, 2 * share),
            record: Record::new(RootId::FS_TREE, 0),
        })
    }

    fn find(&self, tree: RootId, id: LinkId) -> std::io::Result<Option<u64>> {
        let mut ino = None;
        self.by_id.find(hash(tree, id), |number| {
            let known = self.files.get(number.into())?;
            let is_it = (known.tree, known.id) == (tree, id);
            ino = is_it.then_some(known.ino);
            Ok::<_, std::io::Error>(is_it)
        })?;
        Ok(ino)
    }

    fn file(&mut self, tree: RootId, id: LinkId, linked: &Linked) -> Result<(), MkfsError> {
        let ino = linked.ino;
        let mut add = || {
            let number = self.files.push(Known { tree, id, ino })?;
            self.by_id.insert(hash(tree, id), number as u32)
        };
        add().map_err(MkfsError::Scratch)?;
        self.record.reset(tree, ino);
        let inode = linked.inode.as_bytes();
        self.record.item(KeyType::INODE_ITEM, 0, &[inode]);
        self.items.push(&self.record)?;
        let mut names = linked.names.iter();
        names.try_for_each(|name| self.name(tree, ino, name))
    }

    fn name(&mut self, tree: RootId, ino: u64, name: &Name) -> Result<(), MkfsError> {
        self.record.reset(tree, ino);
        let data: [&[u8]; 2] = [&name.index.to_le_bytes(), &name.name];
        self.record.item(KeyType::INODE_REF, name.dir, &data);
        self.items.push(&self.record)
    }
}

fn linked_of(key: Key, data: &[u8]) -> Linked {
    Linked {
        ino: key.objectid,
        inode: InodeItem::read_from_bytes(data).expect("put as one"),
        names: Vec::new(),
        left: 0,
    }
}

fn name_of(key: Key, data: &[u8]) -> Option<Name> {
    let (index, name) = data.split_first_chunk()?;
    Some(Name {
        dir: key.offset,
        index: u64::from_le_bytes(*index),
        name: name.to_vec(),
    })
}

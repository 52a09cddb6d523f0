//! The names and paths of inodes in one snapshot.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_format::item::{InodeExtrefs, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::Snapshot;

use super::error::DiffError;

/// Maximum number of names of a file, above the kernel's limit.
pub(super) const MAX_NAMES: usize = 1 << 16;
/// Maximum path length; longer paths must contain a loop.
const MAX_PATH_BYTES: usize = 1 << 20;
const CACHE_BYTES: usize = 4 << 20;
/// Overhead of a cache entry in addition to its path.
const ENTRY_BYTES: usize = 64;

/// A directory's inode number and an entry in it.
pub(super) type Name = (u64, Vec<u8>);

/// Computes paths, with a cache for directories.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    snapshot: &'a Snapshot,
    dirs: HashMap<u64, Arc<[u8]>>,
    cached_bytes: usize,
}

impl<'a> Paths<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Paths<'a> {
        Paths {
            snapshot,
            dirs: HashMap::new(),
            cached_bytes: 0,
        }
    }

    fn top(&self) -> u64 {
        self.snapshot.root_dir().ino.0
    }

    pub(super) fn of_name(&mut self, name: &Name) -> Result<PathBuf, DiffError> {
        let dir = self.of_dir(name.0)?;
        Ok(PathBuf::from(OsString::from_vec(joined(&dir, &name.1))))
    }

    fn of_dir(&mut self, dir: u64) -> Result<Arc<[u8]>, DiffError> {
        let mut names: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut len = 0;
        let mut at = dir;
        let mut path: Arc<[u8]> = loop {
            if at == self.top() {
                break Arc::from(&b""[..]);
            }
            if let Some(path) = self.dirs.get(&at) {
                break Arc::clone(path);
            }
            let (parent, name) = self.first_name(at)?.ok_or(DiffError::Corrupt {
                tree: self.snapshot.id(),
                key: Key::new(at, KeyType::INODE_REF, 0),
            })?;
            len += name.len() + 1;
            if len > MAX_PATH_BYTES {
                return Err(self.too_long(dir));
            }
            names.push((at, name));
            at = parent;
        };
        if path.len() + len > MAX_PATH_BYTES {
            return Err(self.too_long(dir));
        }
        while let Some((inode, name)) = names.pop() {
            path = joined(&path, &name).into();
            self.remember(inode, &path);
        }
        Ok(path)
    }

    fn too_long(&self, inode: u64) -> DiffError {
        DiffError::Path {
            tree: self.snapshot.id(),
            inode,
        }
    }

    fn remember(&mut self, inode: u64, path: &Arc<[u8]>) {
        let bytes = path.len() + ENTRY_BYTES;
        if self.cached_bytes + bytes > CACHE_BYTES {
            self.dirs.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += bytes;
        self.dirs.insert(inode, Arc::clone(path));
    }

    /// Returns the first name of an inode in key order.
    pub(super) fn first_name(&self, inode: u64) -> Result<Option<Name>, DiffError> {
        let mut first = None;
        self.each_name(inode, &mut |name| {
            first = Some(name);
            false
        })?;
        Ok(first)
    }

    pub(super) fn all_names(&self, inode: u64) -> Result<BTreeSet<Name>, DiffError> {
        let mut names = BTreeSet::new();
        self.each_name(inode, &mut |name| {
            names.insert(name);
            names.len() <= MAX_NAMES
        })?;
        if names.len() > MAX_NAMES {
            Err(DiffError::TooManyNames {
                tree: self.snapshot.id(),
                inode,
            })
        } else {
            Ok(names)
        }
    }

    fn each_name(&self, inode: u64, each: &mut dyn FnMut(Name) -> bool) -> Result<(), DiffError> {
        let mut cursor = self.snapshot.view().cursor();
        let mut more = cursor.seek(&Key::new(inode, KeyType::INODE_REF, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                return Ok(());
            };
            if key.objectid != inode || key.item_type > KeyType::INODE_EXTREF {
                return Ok(());
            }
            for name in names_in(key, bytes) {
                if !each(name) {
                    return Ok(());
                }
            }
            more = cursor.advance()?;
        }
        Ok(())
    }
}

/// Lists the names in an item. Returns an empty list if the item has no names.
pub(super) fn names_in(key: Key, bytes: &[u8]) -> Vec<Name> {
    let names: Vec<Name> = match key.item_type {
        KeyType::INODE_REF => InodeRefs::new(bytes)
            .map(|entry| (key.offset, entry.name.to_vec()))
            .collect(),
        KeyType::INODE_EXTREF => InodeExtrefs::new(bytes)
            .map(|entry| (entry.parent, entry.name.to_vec()))
            .collect(),
        _ => Vec::new(),
    };
    // The root directory is its own parent.
    names
        .into_iter()
        .filter(|(parent, _)| *parent != key.objectid)
        .collect()
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

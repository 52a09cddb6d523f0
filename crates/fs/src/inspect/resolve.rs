//! Resolves numbers to names: the paths of an inode, and the users of a logical address.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use ubtrfs_format::ids::{InodeNr, Logical};
use ubtrfs_format::item::{InodeExtrefs, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::{BackRefs, DataExtent, ExtentUser, FileId, RootsOfBlocks};

use crate::error::{CorruptItem, Error, Result};
use crate::volume::Volume;

#[cfg(test)]
mod tests;

impl Volume {
    /// Returns all names of an inode in its subvolume, as (directory, name).
    pub fn inode_names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let tree = self.subvolume_tree(id.root)?;
        let mut names = Vec::new();
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&Key::new(id.ino.0, KeyType::INODE_REF, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            match (key.objectid == id.ino.0, key.item_type) {
                (true, KeyType::INODE_REF) => {
                    let dir = FileId::new(id.root, InodeNr(key.offset));
                    names.extend(InodeRefs::new(bytes).map(|entry| (dir, entry.name.to_vec())));
                }
                (true, KeyType::INODE_EXTREF) => {
                    names.extend(InodeExtrefs::new(bytes).map(|entry| {
                        let dir = FileId::new(id.root, InodeNr(entry.parent));
                        (dir, entry.name.to_vec())
                    }))
                }
                _ => break,
            }
            more = cursor.advance()?;
        }
        Ok(names)
    }

    /// Returns the path of a directory within its subvolume, without slashes at its ends.
    pub fn path_in_subvolume(&self, dir: FileId) -> Result<Vec<u8>> {
        let top = self.root_dir(dir.root)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut at = dir;
        while at != top {
            if !seen.insert(at) {
                return Err(Error::Corrupt {
                    tree: dir.root,
                    key: Key::new(dir.ino.0, KeyType::INODE_REF, 0),
                    what: CorruptItem::Loop,
                });
            }
            let (parent, name) = self.directory_name(at)?;
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Returns the paths of an inode within its subvolume. The root directory has the path "".
    pub fn inode_paths(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        if self.root_dir(id.root)? == id {
            return Ok(vec![Vec::new()]);
        }
        let mut paths = Vec::new();
        for (dir, name) in self.inode_names(id)? {
            let mut path = self.path_in_subvolume(dir)?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            paths.push(path);
        }
        Ok(paths)
    }

    /// Returns the data extent that contains a logical address, or None for free space and tree blocks.
    pub fn data_extent_at(&self, logical: Logical) -> Result<Option<DataExtent>> {
        Ok(BackRefs::new(&*self.roots).data_extent_at(logical)?)
    }

    /// Calls `each` with every use of a data extent, until it breaks. With `at`, only with uses of that byte.
    pub fn extent_users(
        &self,
        extent: Logical,
        at: Option<u64>,
        roots: &mut RootsOfBlocks,
        each: &mut dyn FnMut(ExtentUser) -> ControlFlow<()>,
    ) -> Result<()> {
        Ok(BackRefs::new(&*self.roots).extent_users(extent, at, roots, each)?)
    }
}

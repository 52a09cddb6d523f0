//! The last stage: link counts of inodes whose names may have changed.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, FileKind, InodeExtrefs, InodeItem, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;

use super::Replay;
use crate::error::{CorruptItem, Result};
use crate::inode::{inode_key, kind_of, orphan_key};

impl Replay<'_, '_> {
    /// Counts the names of inodes. Those without names become orphans.
    pub(super) fn count_links(&mut self) -> Result<()> {
        while let Some(ino) = self.recount.pop_first() {
            if let Some(item) = self.find_inode(ino)? {
                self.count_links_of(ino, item)?;
            }
        }
        Ok(())
    }

    fn count_links_of(&mut self, ino: InodeNr, mut item: InodeItem) -> Result<()> {
        let names = self.count_names(ino)?;
        let is_dir = kind_of(self.file(ino), &item)? == FileKind::Directory;
        // The top directory has one name, which no directory lists.
        if is_dir && names > 1 {
            return Err(self.corrupt(inode_key(ino), CorruptItem::LogDirectoryNames(names)));
        }
        if names == 0 && is_dir {
            self.empty(ino)?;
            if let Some(emptied) = self.find_inode(ino)? {
                item = emptied;
            }
        }
        if item.nlink.get() != names {
            item.nlink = names.into();
            self.put_inode(ino, &item);
        }
        let orphan = orphan_key(ino);
        let is_orphan = self.tree.view.get(&orphan)?.is_some();
        let edit = match (names, is_orphan) {
            (0, false) => Edit::Insert(orphan, [].into()),
            (1.., true) => Edit::Delete(orphan),
            _ => return Ok(()),
        };
        self.target.edit_items(&self.tree, vec![edit], None);
        Ok(())
    }

    /// Removes all entries of a directory that has lost its name. Their inodes may have other names.
    fn empty(&mut self, dir: InodeNr) -> Result<()> {
        loop {
            let first = Key::new(dir.0, KeyType::DIR_INDEX, 0);
            let mut cursor = self.tree.view.cursor();
            cursor.seek(&first)?;
            let Some((key, bytes)) = cursor.current() else {
                return Ok(());
            };
            if (key.objectid, key.item_type) != (first.objectid, first.item_type) {
                return Ok(());
            }
            let name = DirEntries::new(bytes)
                .next()
                .map(|entry| entry.name.to_vec())
                .ok_or_else(|| self.corrupt(key, CorruptItem::Undecodable))?;
            drop(cursor);
            self.unlink(dir, &name)?;
        }
    }

    fn count_names(&self, ino: InodeNr) -> Result<u32> {
        let mut count = 0;
        let mut cursor = self.tree.view.cursor();
        let mut more = cursor.seek(&Key::new(ino.0, KeyType::INODE_REF, 0))?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && key.objectid == ino.0
            && key.item_type <= KeyType::INODE_EXTREF
        {
            count += match key.item_type {
                KeyType::INODE_REF => InodeRefs::new(bytes).count(),
                KeyType::INODE_EXTREF => InodeExtrefs::new(bytes).count(),
                _ => 0,
            };
            more = cursor.advance()?;
        }
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

//! Entries of a directory that is logged in full, and what the new ones lead to.

use ubtrfs_format::item::{DirEntries, FileKind};
use ubtrfs_format::key::KeyType;
use ubtrfs_transaction::Unlogged;

use super::gather::{EditedItem, Gather, Step, Subject};
use super::{Part, Stop};

impl Gather<'_> {
    /// Adds entries of a directory that were made or removed, by the keys that list them.
    pub(super) fn add_entries(&mut self, dir: &Subject, entries: Vec<EditedItem>) -> Step {
        for (key, item) in entries {
            let Some(item) = item else {
                self.log.delete(key);
                if !dir.is_new {
                    self.hide_name(key.objectid, key.offset)?;
                }
                continue;
            };
            for entry in DirEntries::new(&item) {
                let location = entry.location();
                if location.item_type != KeyType::INODE_ITEM {
                    return Err(Stop::Unlogged(Unlogged::Subvolume));
                }
                let is_new_dir =
                    entry.kind() == Some(FileKind::Directory) && self.is_new(location.objectid)?;
                let part = match is_new_dir {
                    true => Part::All,
                    false => Part::Existence,
                };
                self.need(location.objectid, part);
            }
            self.log.put(key, item);
        }
        Ok(())
    }
}

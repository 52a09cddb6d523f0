//! The entries of a fully logged directory, and the inodes that they lead to.

use ubtrfs_format::item::{DirEntries, FileKind};
use ubtrfs_format::key::KeyType;
use ubtrfs_storage::FullCommitReason;

use super::gather::{EditedItem, Gather, Step, Subject};
use super::{Part, Stop};

impl Gather<'_> {
    /// Adds entries of a directory that were added or removed, given by their DIR_INDEX items.
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
                    return Err(Stop::FullCommit(FullCommitReason::Subvolume));
                }
                let is_new_dir =
                    entry.kind() == Some(FileKind::Directory) && self.is_new(location.objectid)?;
                let part = if is_new_dir {
                    Part::All
                } else {
                    Part::Existence
                };
                self.need(location.objectid, part);
            }
            self.log.put(key, item);
        }
        Ok(())
    }
}

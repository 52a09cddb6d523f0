//! Differing extended attributes.

use ubtrfs_format::item::DirEntries;
use ubtrfs_format::item::acl;
use ubtrfs_tree::Item;

use super::error::Result;
use super::inherited::is_inheritable;
use super::inode_update::Update;
use super::job::Job;
use crate::format::Command;

/// Cleared by writes and by chown.
const CAPABILITY: &[u8] = b"security.capability";
/// An ACL without entries: only the version.
const EMPTY_ACL: &[u8] = &[2, 0, 0, 0];

/// Returns the value to set. An empty ACL value cannot be set, and is replaced by an ACL without entries.
pub(super) fn settable<'v>(name: &[u8], value: &'v [u8]) -> &'v [u8] {
    match name {
        acl::ACCESS | acl::DEFAULT if value.is_empty() => EMPTY_ACL,
        _ => value,
    }
}

impl Job<'_> {
    /// Sends the differences between two items with the same hash.
    pub(super) fn take_xattrs(
        &mut self,
        update: &mut Update,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<()> {
        let entries = |item: Option<&Item>| -> Vec<(Vec<u8>, Vec<u8>)> {
            let entries = item.map(|item| DirEntries::new(item));
            let entries = entries.into_iter().flatten();
            entries
                .map(|e| (e.name.to_vec(), e.data.to_vec()))
                .collect()
        };
        let (mut old, mut new) = (entries(old), entries(new));
        if update.after.is_dir() {
            let len = old.len() + new.len();
            for entries in [&mut old, &mut new] {
                entries.retain(|(name, _)| !is_inheritable(name));
            }
            if old.len() + new.len() < len {
                self.inherited.note(update.ino)?;
            }
        }
        let path = &update.path;
        for (name, _) in &old {
            if !new.iter().any(|(other, _)| other == name) {
                self.write(&Command::RemoveXattr { path, name })?;
            }
        }
        for entry in new {
            if old.contains(&entry) {
                continue;
            }
            let (name, value) = entry;
            if name == CAPABILITY {
                update.capability = Some(value);
                continue;
            }
            let (name, value) = (name.as_slice(), settable(&name, &value));
            self.write(&Command::SetXattr { path, name, value })?;
        }
        Ok(())
    }

    /// Sets the capabilities of a file if they have changed or were cleared.
    pub(super) fn set_capability(&mut self, update: &mut Update) -> Result<()> {
        let mut value = update.capability.take();
        if value.is_none() && update.before.is_some() && update.data.clears_capability {
            value = self.new.xattr(update.ino, CAPABILITY)?;
        }
        let Some(value) = value else {
            return Ok(());
        };
        self.write(&Command::SetXattr {
            path: &update.path,
            name: CAPABILITY,
            value: &value,
        })
    }
}

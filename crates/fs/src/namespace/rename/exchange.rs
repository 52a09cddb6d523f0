//! Exchanging two names.

use ubtrfs_format::item::InodeItem;
use ubtrfs_storage::Reservation;

use super::Rename;
use super::place::{Drafts, Place};
use crate::error::{Error, Result};
use crate::inode::{Locked, note_change};
use crate::namespace::entry::next_index;

impl<'a> Rename<'a> {
    pub(super) fn exchange(
        &self,
        reservation: Reservation<'_>,
        mut locked: Locked<'a>,
        mut drafts: Drafts<'a>,
        new: &Place<'a>,
    ) -> Result<()> {
        let Rename { old, new_dir, .. } = *self;
        let mut from = drafts.of(&old.dir.tree).inode(old.dir.id)?;
        let mut to = drafts.of(&new_dir.tree).inode(new_dir.id)?;
        let [old_item, new_item] = self.check_exchange(&from, &to, new)?;
        let index = next_index(new_dir, locked.state(new_dir.id))?;
        let old_index = if self.within_dir() {
            index + 1
        } else {
            next_index(old.dir, locked.state(old.dir.id))?
        };
        drafts.detach(old)?;
        drafts.detach(new)?;
        let extrefs = self.namespace.has_extrefs();
        drafts.attach(old, new_dir, self.new_name, index, extrefs)?;
        drafts.attach(new, old.dir, old.name, old_index, extrefs)?;
        self.note_moved(&mut drafts, old, old_item);
        self.note_moved(&mut drafts, new, new_item);
        for (dir, item) in [(old.dir, &mut from), (new_dir, &mut to)] {
            item.mtime = self.now.into();
            note_change(item, self.now);
            drafts.of(&dir.tree).put_inode(dir.id.ino, item);
        }
        let txn = self
            .namespace
            .inodes
            .join_to_change(reservation, &old.dir.tree)?;
        new_dir.tree.check_writable()?;
        if old.dir.id.root != new_dir.id.root {
            old.dir.tree.check_undeleted()?;
            new_dir.tree.check_undeleted()?;
        }
        drafts.enter(&txn);
        locked.state(new_dir.id).next_index = Some(index + 1);
        locked.state(old.dir.id).next_index = Some(old_index + 1);
        Ok(())
    }

    /// Checks an exchange in the kernel's order. `from` and `to` are the items of the directories. Returns
    /// the items of the inodes.
    fn check_exchange(
        &self,
        from: &InodeItem,
        to: &InodeItem,
        new: &Place<'_>,
    ) -> Result<[Option<InodeItem>; 2]> {
        let Rename { old, new_dir, .. } = *self;
        let items = [self.may_leave(old, from)?, self.may_leave(new, to)?];
        for place in [old, new] {
            self.may_move(place)?;
        }
        let subvolumes = old.is_subvolume() && new.is_subvolume();
        if old.dir.id.root != new_dir.id.root && !subvolumes {
            return Err(Error::CrossSubvolume);
        }
        for place in [old, new] {
            if place.id.is_empty_subvolume_dir() {
                return Err(Error::NotEmpty(place.id));
            }
        }
        Ok(items)
    }
}

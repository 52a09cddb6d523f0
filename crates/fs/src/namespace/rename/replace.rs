//! Moving a name, perhaps over an existing one.

use ubtrfs_format::item::InodeItem;
use ubtrfs_storage::{FileId, Reservation};

use super::Rename;
use super::place::{Drafts, Place};
use crate::error::{Error, Result};
use crate::inode::{EntryChange, Locked, may_add, must_be_dir, note_change, note_entry};
use crate::namespace::entry::{NewEntry, next_index};
use crate::namespace::inherit::inherited;
use crate::namespace::new_inode::{NewInode, Parent};
use crate::namespace::unlink::AfterUnlink;

impl<'a> Rename<'a> {
    /// Renames, and replaces `new`, the existing target of the new name.
    pub(super) fn replace(
        &self,
        reservation: Reservation<'_>,
        mut locked: Locked<'a>,
        mut drafts: Drafts<'a>,
        new: Option<&Place<'a>>,
        whiteout: Option<&NewInode<'_>>,
    ) -> Result<()> {
        let Rename { old, new_dir, .. } = *self;
        let mut from = drafts.of(&old.dir.tree).inode(old.dir.id)?;
        let mut to = if self.within_dir() {
            from
        } else {
            drafts.of(&new_dir.tree).inode(new_dir.id)?
        };
        let item = self.check(&from, &to, new)?;
        let index = next_index(new_dir, locked.state(new_dir.id))?;
        let left = match new {
            Some(new) => Some(self.displace(&mut drafts, &mut locked, new)?),
            None => None,
        };
        drafts.detach(old)?;
        let extrefs = self.namespace.has_extrefs();
        drafts.attach(old, new_dir, self.new_name, index, extrefs)?;
        self.note_moved(&mut drafts, old, item);
        note_entry(&mut from, self.now, EntryChange::Removed, old.name.len());
        let mut old_next = None;
        if let Some(whiteout) = whiteout {
            let at = if self.within_dir() {
                index + 1
            } else {
                next_index(old.dir, locked.state(old.dir.id))?
            };
            self.leave(&mut drafts, &mut locked, &from, whiteout, at)?;
            note_entry(&mut from, self.now, EntryChange::Added, old.name.len());
            old_next = Some(at + 1);
        }
        if self.within_dir() {
            to = from;
        } else {
            drafts.of(&old.dir.tree).put_inode(old.dir.id.ino, &from);
        }
        if new.is_some() {
            note_entry(&mut to, self.now, EntryChange::Removed, self.new_name.len());
        }
        note_entry(&mut to, self.now, EntryChange::Added, self.new_name.len());
        drafts.of(&new_dir.tree).put_inode(new_dir.id.ino, &to);

        let txn = self
            .namespace
            .inodes
            .join_to_change(reservation, &old.dir.tree)?;
        new_dir.tree.check_writable()?;
        if old.is_subvolume() {
            new_dir.tree.check_undeleted()?;
        }
        drafts.enter(&txn);
        locked.state(new_dir.id).next_index = Some(index + 1);
        if let Some(next) = old_next {
            locked.state(old.dir.id).next_index = Some(next);
        }
        let victim = new.and_then(|new| new.inode.as_ref());
        let evict = match (left, victim) {
            (Some(left), Some(victim)) => {
                let state = locked.state(victim.id);
                self.namespace.finish_unlink(&txn, victim, state, left)
            }
            _ => false,
        };
        drop(txn);
        drop(locked);
        if let (true, Some(victim)) = (evict, victim) {
            self.namespace.inodes.queue_eviction(victim);
        }
        Ok(())
    }

    /// Checks a rename in the kernel's order. `from` and `to` are the items of the directories. Returns the
    /// item of the moved inode.
    fn check(
        &self,
        from: &InodeItem,
        to: &InodeItem,
        new: Option<&Place<'_>>,
    ) -> Result<Option<InodeItem>> {
        let Rename { old, new_dir, .. } = *self;
        let item = self.may_leave(old, from)?;
        must_be_dir(new_dir.id, to)?;
        match new {
            None => may_add(&new_dir.tree, new_dir.id, to)?,
            Some(new) => {
                self.may_leave(new, to)?;
                match (old.is_dir(), new.is_dir()) {
                    (true, false) => return Err(Error::NotADirectory(new.id)),
                    (false, true) => return Err(Error::IsADirectory(new.id)),
                    _ => {}
                }
            }
        }
        self.may_move(old)?;
        let may_cross = old.is_subvolume() && !old.id.is_empty_subvolume_dir();
        if old.dir.id.root != new_dir.id.root && !may_cross {
            return Err(Error::CrossSubvolume);
        }
        let stays = |place: &Place<'_>| place.is_subvolume() && !place.id.is_empty_subvolume_dir();
        match new {
            _ if old.id.is_empty_subvolume_dir() => Err(Error::NotEmpty(old.id)),
            Some(new) if stays(new) => Err(Error::NotEmpty(new.id)),
            _ => Ok(item),
        }
    }

    /// Removes the new name from its old target.
    fn displace<'n>(
        &self,
        drafts: &mut Drafts<'a>,
        locked: &mut Locked<'a>,
        new: &'n Place<'a>,
    ) -> Result<AfterUnlink<'n>> {
        let Some(inode) = &new.inode else {
            drafts.detach_empty_subvolume_dir(new)?;
            return Ok(AfterUnlink::Something);
        };
        let mut item = drafts.of(&new.dir.tree).inode(new.id)?;
        drafts.detach(new)?;
        let draft = drafts.of(&new.dir.tree);
        let state = locked.state(new.id);
        self.namespace
            .drop_link(draft, inode, &mut item, state, self.now)
    }

    /// Updates the moved inode, whose item is `item`. The root directory of a subvolume does not change.
    pub(super) fn note_moved(
        &self,
        drafts: &mut Drafts<'a>,
        place: &Place<'a>,
        item: Option<InodeItem>,
    ) {
        if let Some(mut item) = item.filter(|_| !place.is_subvolume()) {
            note_change(&mut item, self.now);
            drafts.of(&place.dir.tree).put_inode(place.id.ino, &item);
        }
    }

    /// Creates the whiteout under the old name.
    fn leave(
        &self,
        drafts: &mut Drafts<'a>,
        locked: &mut Locked<'a>,
        from: &InodeItem,
        whiteout: &NewInode<'_>,
        index: u64,
    ) -> Result<()> {
        let (dir, name) = (self.old.dir, self.old.name);
        let inherited = inherited(&dir.tree, dir.id, locked.state(dir.id))?;
        let id = FileId::new(dir.id.root, self.namespace.new_ino(&dir.tree)?);
        let entry = NewEntry {
            name,
            index,
            location: id.location(),
            kind: whiteout.kind()?,
        };
        let draft = drafts.of(&dir.tree);
        draft.add_entry(dir.id.ino, entry)?;
        draft.insert_ref(id.ino, dir.id.ino, index, name);
        let parent = Parent {
            item: from,
            inherited: &inherited,
        };
        draft
            .insert_new(id.ino, whiteout, 1, &parent, self.now)
            .map(drop)
    }
}

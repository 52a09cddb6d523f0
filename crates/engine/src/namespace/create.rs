//! Making a file, directory, link, device, fifo or socket under a name.

use std::sync::Arc;

use ubtrfs_format::item::{FileTime, InodeItem};
use ubtrfs_transaction::{EditEstimate, FileId, Reservation, lock};

use super::entry::{NewEntry, check_name, next_index};
use super::inherit::inherited;
use super::new_inode::{NewInode, Parent};
use crate::error::Result;
use crate::inode::{Attr, Draft, Inode, InodeHold, InodeState};
use crate::namespace::Namespace;

impl Namespace {
    /// Makes an inode of the kind that `new.mode` names, as `name` in `dir`.
    pub(crate) fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        self.create_and_look(dir, name, new).map(|(id, _)| id)
    }

    /// Makes an inode as `create` does, and returns its attributes, too.
    pub(crate) fn create_and_look(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(FileId, Attr)> {
        let reservation = self.reserve_new(name, new)?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let draft_of_inode = self.draft_new(&parent, &mut state, name, new)?;
        let id = draft_of_inode.id;
        let attr = self.enter_new(reservation, &parent, &mut state, draft_of_inode, None)?;
        Ok((id, attr))
    }

    /// Makes an inode and holds it before its name can be taken away. Returns its attributes, too.
    pub(crate) fn create_and_hold(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(InodeHold, Attr)> {
        let reservation = self.reserve_new(name, new)?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let draft_of_inode = self.draft_new(&parent, &mut state, name, new)?;
        // Held before anybody can take its name away.
        let inode = self.inodes.get(draft_of_inode.id)?;
        let mut held = lock::write(&inode.lock)?;
        let attr = self.enter_new(
            reservation,
            &parent,
            &mut state,
            draft_of_inode,
            Some(&mut held),
        )?;
        drop(held);
        Ok((InodeHold::counted(Arc::clone(&self.inodes), inode), attr))
    }

    fn reserve_new(&self, name: &[u8], new: &NewInode<'_>) -> Result<Reservation<'_>> {
        check_name(name)?;
        new.check(self.roots.node_store().nodesize())?;
        new.kind()?;
        self.inodes
            .reserve_metadata(EditEstimate::items(5).bytes(new.bytes()))
    }

    fn draft_new<'t>(
        &self,
        parent: &'t Arc<Inode>,
        state: &mut InodeState,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<NewInodeDraft<'t>> {
        let dir = parent.id;
        let mut draft = Draft::new(&parent.tree);
        let index = next_index(parent, state)?;
        let inherited = inherited(&parent.tree, dir, state)?;
        let id = FileId::new(dir.root, self.new_ino(&parent.tree)?);
        let entry = NewEntry {
            name,
            index,
            location: id.location(),
            kind: new.kind()?,
        };
        let now = FileTime::now();
        let dir_item = draft.add_to_dir(dir, entry, now)?;
        draft.insert_ref(id.ino, dir.ino, index, name);
        let from = Parent {
            item: &dir_item,
            inherited: &inherited,
        };
        let item = draft.insert_new(id.ino, new, 1, &from, now)?;
        Ok(NewInodeDraft {
            id,
            item,
            index,
            draft,
        })
    }

    /// `held` is the state of the new inode if it shall be held.
    fn enter_new(
        &self,
        reservation: Reservation<'_>,
        parent: &Inode,
        state: &mut InodeState,
        draft_of_inode: NewInodeDraft<'_>,
        held: Option<&mut InodeState>,
    ) -> Result<Attr> {
        let NewInodeDraft {
            id,
            mut item,
            index,
            draft,
        } = draft_of_inode;
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        let transid = txn.transid().0;
        if let Some(held) = held {
            parent.tree.acquire()?;
            held.open_count += 1;
        }
        draft.enter(&txn);
        drop(txn);
        state.next_index = Some(index + 1);
        (item.generation, item.transid) = (transid.into(), transid.into());
        Attr::of(id, &item)
    }
}

/// An inode that is about to be made.
struct NewInodeDraft<'t> {
    id: FileId,
    item: InodeItem,
    /// That of its entry.
    index: u64,
    draft: Draft<'t>,
}

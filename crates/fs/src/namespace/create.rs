//! Creating a file, directory, symbolic link, device, fifo or socket.

use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileKind, FileTime, InodeFlags, InodeItem};
use ubtrfs_storage::{EditEstimate, FileId, Reservation, lock};

use super::entry::{NewEntry, check_name, next_index};
use super::inherit::{flags_in, inherited};
use super::new_inode::{NewContents, NewInode, Parent};
use crate::error::Result;
use crate::inode::{Attr, Draft, Inode, InodeHold, InodeState, inode_item_cached};
use crate::namespace::Namespace;

impl Namespace {
    /// Creates `name` in `dir`. `new.mode` has the file type.
    pub(crate) fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        self.create_and_look(dir, name, new).map(|(id, _)| id)
    }

    /// Creates an inode like `create`, and also returns its attributes.
    pub(crate) fn create_and_look(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(FileId, Attr)> {
        let nothing = NewContents::default();
        let reservation = self.reserve_new(dir.root, name, new, &nothing)?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let draft_of_inode = self.draft_new(&parent, &mut state, name, new, &nothing)?;
        let id = draft_of_inode.id;
        let attr = self.enter_new(reservation, &parent, &mut state, draft_of_inode, None)?;
        Ok((id, attr))
    }

    /// Creates a regular file with its contents. Returns None, with nothing changed, unless all data fits
    /// inline without encoding.
    pub(crate) fn create_filled(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
        contents: &NewContents<'_>,
    ) -> Result<Option<FileId>> {
        if new.kind()? != FileKind::Regular || !self.files.keeps_inline(contents.data.len() as u64)
        {
            return Ok(None);
        }
        let reservation = self.reserve_new(dir.root, name, new, contents)?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        if !contents.data.is_empty() && !self.stores_as_is(&parent, &mut state)? {
            return Ok(None);
        }
        let draft_of_inode = self.draft_new(&parent, &mut state, name, new, contents)?;
        let id = draft_of_inode.id;
        self.enter_new(reservation, &parent, &mut state, draft_of_inode, None)?;
        Ok(Some(id))
    }

    /// Returns whether small data of a file created in `parent` is neither compressed nor overwritten in
    /// place.
    fn stores_as_is(&self, parent: &Arc<Inode>, state: &mut InodeState) -> Result<bool> {
        let inherited = inherited(&parent.tree, parent.id, state)?;
        let dir_item = inode_item_cached(&parent.tree, parent.id)?;
        let kind = FileKind::Regular;
        let flags = flags_in(dir_item.flags(), kind) | parent.tree.new_inode_flags(kind);
        let others = InodeFlags::NODATACOW | InodeFlags::PREALLOC | InodeFlags::COMPRESS;
        Ok(!flags.intersects(others)
            && inherited.compression.is_none()
            && self.inodes.settings.compress().algorithm == Compression::None)
    }

    /// Creates an inode and holds it before any thread can unlink it. Also returns its attributes.
    pub(crate) fn create_and_hold(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(InodeHold, Attr)> {
        let nothing = NewContents::default();
        let reservation = self.reserve_new(dir.root, name, new, &nothing)?;
        let parent = self.inodes.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let draft_of_inode = self.draft_new(&parent, &mut state, name, new, &nothing)?;
        // Take the hold before the name becomes visible and can be unlinked.
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

    fn reserve_new(
        &self,
        subvolume: RootId,
        name: &[u8],
        new: &NewInode<'_>,
        contents: &NewContents<'_>,
    ) -> Result<Reservation<'_>> {
        check_name(name)?;
        new.check(self.roots.node_store().nodesize())?;
        new.kind()?;
        let len = contents.data.len() as u64;
        let items = if len > 0 { 6 } else { 5 };
        self.inodes.reserve_metadata(
            subvolume,
            EditEstimate::items(items).bytes(new.bytes() + len),
        )
    }

    fn draft_new<'t>(
        &self,
        parent: &'t Arc<Inode>,
        state: &mut InodeState,
        name: &[u8],
        new: &NewInode<'_>,
        contents: &NewContents<'_>,
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
        let item = draft.insert_filled(id.ino, new, contents, 1, &from, now)?;
        Ok(NewInodeDraft {
            id,
            item,
            index,
            draft,
        })
    }

    /// Enters the draft of a new inode. `held` is its state if the caller holds it.
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

/// The draft of a new inode.
struct NewInodeDraft<'t> {
    id: FileId,
    item: InodeItem,
    /// The index of its entry.
    index: u64,
    draft: Draft<'t>,
}

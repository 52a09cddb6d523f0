//! Creating subvolumes and snapshots.
//!
//! Their items are drafted here, and the commit creates them (`transaction::pending_subvolumes`). Until the
//! commit is done, the directory stays locked. `Tree::snapshot_lock` prevents that the parent subvolume or
//! the source of a snapshot is deleted. Other operations wait only behind such a deletion.

use std::sync::Arc;

use ubtrfs_device::{nonblocking, random_uuid};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileKind, FileTime, RootItem, RootItemFlags, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{
    EditEstimate, FileId, Origin, PendingSubvolume, Reservation, TransactionHandle,
};
use zerocopy::FromZeros;

use super::Subvolumes;
use super::uuid_tree::UuidKind;
use crate::error::{Error, Result};
use crate::inode::Draft;
use crate::namespace::{NewEntry, NewInode, RootPlace, check_name, next_index};

/// The subvolume or snapshot that the commit will create.
enum NewTree<'a> {
    New(&'a NewInode<'a>),
    Snapshot { of: Arc<Tree>, read_only: bool },
}

impl Subvolumes {
    /// Creates an empty subvolume `name` in `dir`, and commits. `root` describes its root directory, whose
    /// mode is limited by the default ACL of `dir`. It inherits the compression of the subvolume that
    /// contains `dir`.
    pub(crate) fn create_subvolume(
        &self,
        dir: FileId,
        name: &[u8],
        root: &NewInode<'_>,
    ) -> Result<RootId> {
        root.check(self.roots.node_store().nodesize())?;
        if FileKind::from_mode(root.mode) != Some(FileKind::Directory) {
            return Err(Error::Invalid("mode of a root directory"));
        }
        let reservation = self.reserve_subvolume(dir.root)?;
        self.make_subvolume(dir, name, &NewTree::New(root), reservation)
    }

    /// Creates a snapshot of `source` as `name` in `dir`, and commits. It contains all data written before
    /// the call.
    pub(crate) fn snapshot(
        &self,
        source: RootId,
        dir: FileId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId> {
        self.inodes.transactions()?;
        nonblocking::check()?;
        let of = self.roots.subvolume_tree(source)?;
        // Reserve before taking the lock: reclaiming space writes back files, which may wait for that lock.
        self.inodes.inode_in_use(dir)?;
        let reservation = self.reserve_subvolume(dir.root)?;
        // Exclude nocow writes (NOCOW-3): later data must not overwrite extents that the snapshot shares.
        let source = Arc::clone(&of);
        let _nocow = source.nocow_lock.write();
        self.files.empty_buffers(Some(source.id()))?;
        self.inodes.write_times()?;
        let id =
            self.make_subvolume(dir, name, &NewTree::Snapshot { of, read_only }, reservation)?;
        // Unnamed files that the source still holds are of no use in the snapshot. A failure does not undo
        // the snapshot.
        let tree = self.roots.subvolume_tree(id);
        let tree = tree.map_err(Error::from);
        if let Err(error) = tree.and_then(|tree| self.inodes.finish_orphans_once(&tree)) {
            tracing::warn!(%id, %error, "files without a name are left");
        }
        Ok(id)
    }

    /// Reserves metadata for a new subvolume, and for its name in `parent`.
    fn reserve_subvolume(&self, parent: RootId) -> Result<Reservation<'_>> {
        nonblocking::check()?;
        self.inodes.transactions()?.check_may_commit()?;
        self.inodes
            .reserve_metadata(parent, EditEstimate::items(16).in_leaves(8).bytes(4096))
    }

    fn make_subvolume(
        &self,
        dir: FileId,
        name: &[u8],
        plan: &NewTree<'_>,
        reservation: Reservation<'_>,
    ) -> Result<RootId> {
        check_name(name)?;
        if let NewTree::Snapshot { of, .. } = plan {
            of.note_snapshot(self.inodes.transactions()?.running_transid().0);
        }
        let parent = self.inodes.inode_in_use(dir)?;
        let mut still = Some(self.inodes.rename_lock().lock());
        let uuid_tree = self.uuid_tree()?;
        let _pending =
            [Some(&parent.tree), plan.source()].map(|tree| Some(tree?.snapshot_lock.read()));
        let mut state = parent.lock.write();
        let id = RootId(self.roots.root_tree_object().next_objectid()?);
        if !id.is_subvolume() {
            return Err(Error::NoSpace);
        }
        let now = FileTime::now();
        let index = next_index(&parent, &state)?;
        let mut draft = Draft::new(&parent.tree);
        let entry = NewEntry {
            name,
            index,
            location: plan.location(id),
            kind: FileKind::Directory,
        };
        draft.add_to_dir(dir, entry, now)?;
        let mut refs = Draft::new(self.roots.root_tree_object());
        let place = RootPlace {
            parent: dir.root,
            dir: dir.ino,
            index,
            name,
        };
        refs.insert_root_ref(id, place);
        let uuid = random_uuid();
        let received = plan.received_uuid();
        let mut uuids = match &uuid_tree {
            Some(tree) => Draft::new(tree),
            None => Draft::for_new_tree(self.roots.root_tree_object()),
        };
        uuids.add_uuid(UuidKind::Own, &uuid, id)?;
        if let Some(received) = &received {
            uuids.add_received_of_source(received, id)?;
        }
        let mut items = Draft::for_new_tree(&parent.tree);
        if let NewTree::New(root) = plan {
            let inherited = self.namespace.inherited_by_root(&parent, &mut state)?;
            items.insert_root_dir(root, &inherited, now)?;
        }
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        parent.tree.check_undeleted()?;
        plan.source().map_or(Ok(()), |of| of.check_undeleted())?;
        let origin = match plan {
            NewTree::New(_) => Origin::New(items.into_puts(&txn)),
            NewTree::Snapshot { of, .. } => Origin::Snapshot(Arc::clone(of)),
        };
        let pending = PendingSubvolume {
            id,
            origin,
            item: plan.root_item(uuid, now, &txn, self.roots.node_store().nodesize()),
            dir_tree: Arc::clone(&parent.tree),
            dir_puts: draft.into_puts(&txn),
            root_puts: refs.into_puts(&txn),
            uuid_puts: uuids.into_puts(&txn),
        };
        txn.queue_subvolume(pending);
        drop(txn);
        // Keep the lock during the commit. Otherwise another thread could draft the same UUID items before
        // they are visible. The item of a received UUID may list several subvolumes, and the UUID tree may
        // have to be created.
        if received.is_none() && uuid_tree.is_some() {
            still = None;
        }
        self.inodes.transactions()?.commit_running()?;
        drop(still);
        state.next_index = Some(index + 1);
        Ok(id)
    }
}

impl NewTree<'_> {
    /// Returns the location in the directory entry, whose offset distinguishes snapshots from subvolumes in
    /// the kernel.
    fn location(&self, id: RootId) -> Key {
        let offset = match self {
            NewTree::New(_) => 0,
            NewTree::Snapshot { .. } => u64::MAX,
        };
        Key::new(id.0, KeyType::ROOT_ITEM, offset)
    }

    fn source(&self) -> Option<&Arc<Tree>> {
        match self {
            NewTree::New(_) => None,
            NewTree::Snapshot { of, .. } => Some(of),
        }
    }

    /// Returns the received UUID of the new subvolume. A read-only snapshot of a received subvolume inherits
    /// it, as both have the same contents.
    fn received_uuid(&self) -> Option<Uuid> {
        match self {
            NewTree::Snapshot {
                of,
                read_only: true,
            } => Some(of.item().received_uuid).filter(|uuid| !uuid.is_nil()),
            _ => None,
        }
    }

    fn root_item(
        &self,
        uuid: Uuid,
        now: FileTime,
        txn: &TransactionHandle<'_>,
        nodesize: usize,
    ) -> RootItem {
        let mut item = match self {
            NewTree::New(_) => RootItem::new_subvolume(nodesize as u32),
            NewTree::Snapshot { of, read_only } => snapshot_item(&of.item(), *read_only),
        };
        let (transid, now) = (txn.transid().0, Timespec::from(now));
        item.uuid = uuid;
        item.refs = 1.into();
        item.otransid = transid.into();
        item.otime = now;
        if let NewTree::New(_) = self {
            item.ctransid = transid.into();
            item.ctime = now;
        }
        item
    }
}

fn snapshot_item(source: &RootItem, read_only: bool) -> RootItem {
    let mut item = *source;
    item.parent_uuid = source.uuid;
    let mut flags = source.flags();
    flags.set(RootItemFlags::RDONLY, read_only);
    item.flags = flags.bits().into();
    if !read_only {
        item.received_uuid = Uuid::NIL;
        (item.stransid, item.rtransid) = (0.into(), 0.into());
        (item.stime, item.rtime) = (Timespec::new_zeroed(), Timespec::new_zeroed());
    }
    item
}

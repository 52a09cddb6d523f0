//! Write-back: turns buffered data into extents.
//!
//! A write-back takes the buffered data of one or more files, writes it to the devices, and then changes the
//! files' items. All items of one run of sectors change in one transaction if there is room for that
//! (`split_insert`). Readers always find the data: first in the buffer, then through the items.
//!
//! Invariants
//! - WRITEBACK-1: no item names data that is not on the devices.
//! - WRITEBACK-2: the size in the inode item never passes data that has no extent yet, and moves in the
//!   transaction that inserts the extents.
//! - WRITEBACK-3: a write-back that fails drops its data. If the write was acknowledged, the next sync of the
//!   file reports the error. Otherwise the error is only returned to the caller. Data is kept in the buffer
//!   only if the inode cannot be read.
//!
//! Locks: the extents of each file throughout, in the order of `FileId`. The inode's lock is held only to
//! take data and to insert items. Space and metadata were reserved when the data was written. A write-back
//! waits for a commit only if the data became more extents than were reserved for (`split_insert`).
//! Not here: how data is stored (`store`), the callers (`sync`, `write`).

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeFlags, InodeItem};
use ubtrfs_storage::csum_tree::CsumShape;
use ubtrfs_storage::{FileId, Reservation, TransactionHandle};

use super::Files;
use super::change::note_write;
use super::extent_edit::ExtentEdit;
use super::plan::{Job, RunGroup, Source, StoragePlan, TakenData};
use super::split_insert::EntryMode;
use super::store::{Store, Stored, StoredFile};
use crate::error::{Error, Result};
use crate::inode::{
    DelallocReservation, FileExtentsState, Inode, inode_item_cached, note_times, put_inode,
};

/// Growing a file rewrites the sector that holds its old end.
pub(super) const GROW_SECTORS: u64 = 1;

impl Files {
    /// Writes the buffered data of a file back.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut unread = Ok(());
        let lost = self.write_back_files(std::slice::from_ref(inode), &mut |_, error| {
            unread = Err(error)
        });
        unread.and(lost)
    }

    /// Writes several files back, given in the order of `FileId`; their data goes to the devices in common
    /// batches. Calls `unread` for each file whose inode cannot be read; its data stays buffered. Returns the
    /// first error of a file whose data is lost.
    pub(super) fn write_back_files(
        &self,
        inodes: &[Arc<Inode>],
        unread: &mut impl FnMut(FileId, Error),
    ) -> Result<()> {
        nonblocking::check()?;
        let guards = inodes.iter().map(|inode| inode.extents.lock());
        let mut guards: Vec<_> = guards.collect::<Result<_>>()?;
        let mut jobs = Vec::new();
        for (inode, extents) in inodes.iter().zip(&mut guards) {
            match Job::from_buffer(self, inode, extents, None) {
                Ok(job) => jobs.extend(job),
                Err(error) => unread(inode.id, error),
            }
        }
        self.run_jobs(jobs)
    }

    /// Writes back a file whose extents the caller has locked.
    pub(super) fn write_back_locked(
        &self,
        inode: &Arc<Inode>,
        extents: &mut FileExtentsState,
    ) -> Result<()> {
        let job = Job::from_buffer(self, inode, extents, None)?;
        self.run_jobs(job.into_iter().collect())
    }

    /// Writes back a file whose extents the caller has locked, and grows it to at least `size`. `delalloc`
    /// covers the [`GROW_SECTORS`] that growing may write.
    pub(super) fn grow_locked(
        &self,
        inode: &Arc<Inode>,
        extents: &mut FileExtentsState,
        size: u64,
        delalloc: DelallocReservation,
    ) -> Result<()> {
        let mut job = Job::from_buffer(self, inode, extents, Some(size))?;
        if let Some(job) = &mut job {
            job.delalloc.join(delalloc);
        }
        self.run_jobs(job.into_iter().collect())
    }

    /// Stores the data of all jobs, then inserts their items. A failed file does not stop the others; returns
    /// the first error.
    pub(super) fn run_jobs(&self, jobs: Vec<Job<'_>>) -> Result<()> {
        let mut means = Vec::with_capacity(jobs.len());
        let mut taken = Vec::with_capacity(jobs.len());
        for job in jobs {
            means.push((job.extents, job.delalloc));
            taken.push(job.taken);
        }
        let plans: Vec<Result<StoragePlan<'_>>> =
            taken.iter().map(|file| file.plan(self)).collect();
        let mut store = Store::new(self);
        for ((file, plan), (extents, delalloc)) in taken.iter().zip(&plans).zip(means) {
            store.add(file.inode, plan.as_ref().ok(), extents, delalloc);
        }
        // WRITEBACK-1: the data is on the devices before any item is inserted.
        let stored = store.finish();
        let mut outcome = Ok(());
        for ((file, plan), stored) in taken.iter().zip(plans).zip(stored) {
            let entered = match (plan, stored) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(plan), Ok(stored)) => self.enter_plan(file, plan, stored),
            };
            outcome = outcome.and(self.complete(file, entered));
        }
        outcome
    }

    /// Removes the data in flight from the buffer, and records a loss (WRITEBACK-3).
    fn complete(&self, file: &TakenData<'_>, outcome: Result<()>) -> Result<()> {
        let mut state = file.inode.lock.write();
        state.buffer.complete(self.roots.sectorsize());
        match &outcome {
            Ok(()) => state.buffer.writeback_errors_mut().note_written(),
            Err(error) if file.source.is_acknowledged() => {
                tracing::error!(file = ?file.inode.id, %error, "written data is lost");
                state.buffer.writeback_errors_mut().add(error.to_string());
            }
            Err(error) => tracing::debug!(file = ?file.inode.id, %error, "a write is refused"),
        }
        if !state.buffer.is_dirty() {
            self.inodes.dirty.remove(file.inode.id);
        }
        outcome
    }

    fn enter_plan(
        &self,
        file: &TakenData<'_>,
        plan: StoragePlan<'_>,
        stored_file: StoredFile<'_>,
    ) -> Result<()> {
        let mut groups = plan.groups.into_iter().zip(&stored_file.groups).enumerate();
        let mut reserved = stored_file.delalloc.items();
        let entered = groups.try_for_each(|(index, (mut group, stored))| {
            if index > 0 {
                // The previous group may have cut an extent that this one replaces too.
                let loaded = file.load(self, &group.runs, group.size.clone());
                group.extent_edit = loaded.map_err(|error| (index, error))?;
            }
            let entry = self.entry_of(&group, stored, &mut reserved);
            let is_hard = stored_file.incompressible;
            match entry.map_err(|error| (index, error))? {
                EntryMode::InBatches(most) => {
                    let entered = self.insert_in_batches(file, &group, stored, most, is_hard);
                    // A failed batch insertion has released its own extents already, so only the later groups
                    // remain.
                    entered.map_err(|error| (index + 1, error))
                }
                EntryMode::AtOnce(reservation) => {
                    let entered = self.enter_group(file, &mut group, stored, is_hard, reservation);
                    entered.map_err(|error| (index, error))
                }
            }
        });
        let Err((index, error)) = entered else {
            return Ok(());
        };
        self.release_extents(stored_file.groups[index..].iter().flatten())?;
        match error {
            // The file was deleted concurrently.
            Error::NoSuchInode(_) | Error::NoSuchSubvolume(_) => Ok(()),
            error => Err(error),
        }
    }

    /// Releases the extents of data whose items were not inserted.
    pub(super) fn release_extents<'s>(&self, left: impl Iterator<Item = &'s Stored>) -> Result<()> {
        let space = &self.inodes.transactions()?.space;
        for extent in left.filter_map(Stored::new_extent) {
            space.release(extent.start, extent.len);
        }
        Ok(())
    }

    /// Inserts the items of one group of runs, in one transaction.
    pub(super) fn enter_group(
        &self,
        file: &TakenData<'_>,
        group: &mut RunGroup<'_>,
        stored: &[Stored],
        incompressible: bool,
        reservation: Reservation<'_>,
    ) -> Result<()> {
        let inode = file.inode;
        let csum_tree = self.roots.tree(RootId::CSUM_TREE)?;
        let shape = CsumShape::of(&self.roots.superblock());
        let mut state = inode.lock.write();
        let mut item = inode_item_cached(&inode.tree, inode.id)?;
        let txn = match file.source {
            // Buffered data was accepted, so it may enter even after the subvolume has become read-only.
            Source::Buffer(_) => self.join_to_finish_change(inode, reservation)?,
            Source::Own(_) | Source::Caller(..) => self.join_to_change_file(inode, reservation)?,
        };
        let generation = txn.transid().0;
        for piece in stored {
            piece.place(&mut group.extent_edit, generation)?;
        }
        for piece in stored {
            self.use_compression(&txn, piece.compression());
            if let Some(extent) = piece.new_extent() {
                txn.new_data_extent(extent);
            }
            if let Some((logical, sums)) = piece.csums() {
                for (key, value) in shape.items(logical, sums) {
                    txn.insert(&csum_tree, key, value);
                }
            }
        }
        self.enter_size(
            &mut group.extent_edit,
            &mut item,
            group.size.clone(),
            generation,
        );
        let stays = group.extent_edit.is_idle() && group.size.is_empty() && !incompressible;
        // The caller's bytes replace older buffered data only when the last group has entered.
        if let Source::Caller(offset, bytes) = &file.source
            && group.ends
        {
            let range = *offset..*offset + bytes.len() as u64;
            drop(state.buffer.forget(range, self.roots.sectorsize()));
        }
        if !matches!(file.source, Source::Buffer(_)) {
            note_write(&mut item);
            if stays {
                note_times(&txn, inode, &mut item);
            }
        }
        if stays {
            return Ok(());
        }
        if incompressible {
            item.flags = (item.flags() | InodeFlags::NOCOMPRESS).bits().into();
        }
        enter_extent_edit(&txn, inode, &group.extent_edit, &mut item);
        Ok(())
    }

    /// Sets the incompat flag of the algorithm in the superblock, as a reader must support it.
    pub(super) fn use_compression(&self, txn: &TransactionHandle<'_>, compression: Compression) {
        let feature = match compression {
            Compression::Lzo => Incompat::COMPRESS_LZO,
            Compression::Zstd => Incompat::COMPRESS_ZSTD,
            Compression::None | Compression::Zlib => return,
        };
        if !self.roots.superblock().incompat().contains(feature) {
            txn.edit_superblock(|edits| edits.use_feature(feature));
        }
    }

    /// Grows the file to the end of `size`. Without NO_HOLES, holes need items.
    pub(super) fn enter_size(
        &self,
        extent_edit: &mut ExtentEdit,
        item: &mut InodeItem,
        size: Range<u64>,
        generation: u64,
    ) {
        if size.is_empty() {
            return;
        }
        if !self.roots.has_no_holes() {
            let sectorsize = self.roots.sectorsize();
            let from = size.start.next_multiple_of(sectorsize);
            let to = size.end.next_multiple_of(sectorsize);
            if from < to {
                extent_edit.fill_holes(from..to, generation);
            }
        }
        // WRITEBACK-2
        item.size = item.size.get().max(size.end).into();
    }
}

/// Enters the changes to a file's extents, and updates its inode item with them.
pub(super) fn enter_extent_edit(
    txn: &TransactionHandle<'_>,
    inode: &Inode,
    extent_edit: &ExtentEdit,
    item: &mut InodeItem,
) {
    extent_edit.enter(txn, inode);
    let nbytes = item.nbytes.get();
    item.nbytes = nbytes
        .saturating_add_signed(extent_edit.nbytes_delta())
        .into();
    put_inode(txn, inode, item);
}

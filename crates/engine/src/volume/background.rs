//! When commits happen: on request, at intervals, and when the delta grows large.
//!
//! One thread commits, another does the work that may wait for files. Operations that wait for room in the delta
//! therefore never wait for data on its way to a slow device.
//!
//! A sync that finds a commit on its way waits for it and then makes its own; all that come meanwhile
//! share that one.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ubtrfs_device::{clock, nonblocking, thread};
use ubtrfs_transaction::roots::LONGEST;
use ubtrfs_transaction::{TransactionManager, Wakening};

use super::Volume;
use crate::error::{Error, Result};

const QUIESCE_TRIES: usize = 8;

impl Volume {
    /// Writes all buffered data and commits all that was done before the call. Returns when it is durable.
    ///
    /// Errors: read-only volume; a transaction that aborted, now or earlier; data of some file that is lost:
    /// all the rest is durable then.
    pub fn sync(&self) -> Result<()> {
        self.roots.check_process()?;
        nonblocking::check()?;
        // ORPHAN-QUEUE-2
        self.inodes.evict_orphans();
        let written = self.files.write_back_all();
        self.inodes.write_times()?;
        self.inodes.transactions()?.commit_running()?;
        written
    }

    /// Syncs as [`Volume::sync`] does, and leaves the volume alone from then on. Nothing is discarded but on request.
    ///
    /// Deleted subvolumes and inodes without a name stay as they are until an operation changes something, or until the
    /// next opening.
    ///
    /// Errors: as `sync`.
    pub fn quiesce(&self) -> Result<()> {
        let manager = self.inodes.transactions()?;
        // An operation that was under way when it began to rest ends the rest.
        for _ in 0..QUIESCE_TRIES {
            manager.set_quiesced(true);
            self.sync()?;
            if manager.is_quiesced() {
                break;
            }
        }
        manager.discard.wait_until_idle();
        Ok(())
    }

    /// Returns whether it was told to rest, and nothing has been changed since.
    pub fn is_quiesced(&self) -> bool {
        self.inodes
            .transactions()
            .is_ok_and(|manager| manager.is_quiesced())
    }

    /// Commits until no deleted subvolume is left to free.
    ///
    /// Errors: as `sync`.
    pub fn free_deleted_subvolumes(&self) -> Result<()> {
        nonblocking::check()?;
        let manager = self.inodes.transactions()?;
        // A commit under way may leave something.
        let needs_cleaner = || {
            let _alone = manager.committing.lock();
            manager.needs_cleaner()
        };
        while needs_cleaner() {
            self.sync()?;
        }
        Ok(())
    }

    /// Starts the threads that commit and write back at intervals. They end when the volume does.
    pub(crate) fn start_background(self: &Arc<Self>, interval: Duration) -> Result<()> {
        self.inodes
            .transactions()?
            .threads
            .set_commit_interval(interval);
        let threads: [(&str, Duty); 3] = [
            ("ubtrfs-commit", commit),
            ("ubtrfs-write", write_back),
            ("ubtrfs-discard", discard),
        ];
        for (name, run) in threads {
            let manager = Arc::clone(self.inodes.transactions()?);
            let volume = Arc::downgrade(self);
            let thread =
                thread::start(name, move || run(&manager, &volume)).map_err(Error::Thread)?;
            self.inodes.transactions()?.threads.add_background(thread);
        }
        Ok(())
    }

    /// Commits what is left and ends the background threads. Discards what waits, for as long as
    /// `OpenOptions::discard_at_close` says.
    ///
    /// Until then these may hold the volume for a moment. After this call, dropping the last handle closes the devices.
    /// The volume takes no changes any more and nothing is written, even if the call fails. Does nothing on a volume
    /// that is read-only or closed.
    ///
    /// Errors: as `sync`. A fork of the process that opened the volume closes nothing.
    pub fn close(&self) -> Result<()> {
        self.roots.check_process()?;
        let Ok(manager) = self.inodes.transactions() else {
            return Ok(());
        };
        if manager.is_closed() {
            return Ok(());
        }
        nonblocking::check()?;
        manager.stop_background();
        let synced = self.sync();
        let outcome = synced.and_then(|()| self.remove_spare_groups(manager));
        if outcome.is_ok() {
            manager.release_freed();
            manager.discard.finish();
        }
        manager.close();
        outcome
    }

    /// Removes the block groups that the last commits have emptied, by one more commit: the next opening may be
    /// read-only. The kernel's cleaner removes them as well, but only with time.
    fn remove_spare_groups(&self, manager: &TransactionManager) -> Result<()> {
        manager.release_freed();
        let is_changed = manager.stats().commits > 0 && !manager.is_quiesced();
        if is_changed && !manager.space.spare_groups(manager.committed()).is_empty() {
            // Nothing else may be left to commit.
            manager.wake_cleaner();
            manager.commit_running()?;
        }
        Ok(())
    }
}

/// How often it is looked whether times have been in memory for long.
const LOOK_FOR_TIMES: Duration = Duration::from_secs(15 * 60);

/// How long a background thread waits for the end of a group before it looks whether the volume is being closed.
const FOR_GROUP: Duration = Duration::from_millis(250);

/// The work of a background thread until the volume is closed.
type Duty = fn(&TransactionManager, &Weak<Volume>);

/// Commits when a thread asks. It waits for no file, since the thread that asked may have it locked.
fn commit(manager: &TransactionManager, volume: &Weak<Volume>) {
    loop {
        let pressed = match manager.threads.next_wake() {
            Wakening::Stop => return,
            Wakening::Pressed => true,
            Wakening::Due => false,
        };
        let Some(_volume) = volume.upgrade() else {
            return;
        };
        // The volume may be closed meanwhile, which ends this thread.
        let Some(_entered) = manager.gate.enter_first(FOR_GROUP) else {
            if pressed {
                manager.threads.want_commit();
            }
            continue;
        };
        if (pressed || manager.needs_cleaner()) && manager.commit_running().is_err() {
            return;
        }
        manager.release_freed();
        manager.retired_sets.free();
    }
}

/// Deletes inodes that were given up, writes times that are old; and at intervals writes all data back and asks for a
/// commit.
fn write_back(manager: &TransactionManager, volume: &Weak<Volume>) {
    let mut last = clock::now();
    let left = |last: Instant| {
        manager
            .threads
            .commit_interval()
            .saturating_sub(clock::now() - last)
    };
    while manager
        .threads
        .next_eviction(left(last).min(LOOK_FOR_TIMES))
    {
        let Some(volume) = volume.upgrade() else {
            return;
        };
        let Some(_entered) = manager.gate.enter_first(FOR_GROUP) else {
            manager.threads.want_eviction();
            continue;
        };
        volume.inodes.evict_orphans();
        // An error that prevents its write prevents the commit as well, which reports it.
        let _ = volume.inodes.write_times_of_age(LONGEST);
        if left(last).is_zero() {
            last = clock::now();
            // A write-back error is reported by the next sync of the file.
            let _ = volume.files.write_back_all();
            volume.inodes.dirty.trim();
            manager.threads.want_commit();
        }
    }
}

/// Discards space that was freed some time ago. Waits for no other thread.
fn discard(manager: &TransactionManager, _: &Weak<Volume>) {
    manager.discard_in_background();
}

//! The timing of commits: on request, at intervals, and when the delta grows large.
//!
//! One thread commits. Another does work that may wait for files. Operations that wait for room in the delta
//! therefore never wait for data in flight to a slow device.
//!
//! A sync during a commit waits for that commit and then makes its own, which all syncs share that arrived in
//! between.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ubtrfs_device::{clock, nonblocking, thread};
use ubtrfs_storage::roots::LONGEST;
use ubtrfs_storage::{TransactionManager, Wakening, begin_background};

use super::Volume;
use crate::error::{Error, Result};

const QUIESCE_TRIES: usize = 8;

impl Volume {
    /// Writes all buffered data and commits all changes made before the call. Returns when they are durable.
    ///
    /// Errors: read-only volume; an aborted transaction; lost data of some file. In the last case everything
    /// else is durable.
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

    /// Syncs like [`Volume::sync`], and then stops all background work except requested discards.
    ///
    /// Deleted subvolumes and unnamed inodes stay until an operation changes something, or until the next
    /// mount.
    ///
    /// Errors: as `sync`.
    pub fn quiesce(&self) -> Result<()> {
        let manager = self.inodes.transactions()?;
        // An operation that was in progress ends the quiesced state, so try again.
        for _ in 0..QUIESCE_TRIES {
            manager.cleaner.set_quiesced(true);
            self.sync()?;
            if manager.cleaner.is_quiesced() {
                break;
            }
        }
        manager.discard.wait_until_idle();
        Ok(())
    }

    /// Returns whether the volume is quiesced and nothing has changed since.
    pub fn is_quiesced(&self) -> bool {
        self.inodes
            .transactions()
            .is_ok_and(|manager| manager.cleaner.is_quiesced())
    }

    /// Commits until all deleted subvolumes are freed.
    ///
    /// Errors: as `sync`.
    pub fn free_deleted_subvolumes(&self) -> Result<()> {
        nonblocking::check()?;
        let manager = self.inodes.transactions()?;
        // A commit in progress may leave something to clean.
        let needs_cleaner = || {
            let _alone = manager.committing.lock();
            manager.cleaner.is_needed()
        };
        while needs_cleaner() {
            self.sync()?;
        }
        Ok(())
    }

    /// Starts the background threads for commits, write-back and discards. They end with the volume.
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
            let work = move || {
                begin_background();
                run(&manager, &volume);
            };
            let thread = thread::start(name, work).map_err(Error::Thread)?;
            self.inodes.transactions()?.threads.add_background(thread);
        }
        Ok(())
    }

    /// Commits the remaining changes and ends the background threads. Discards waiting space for at most
    /// `OpenOptions::discard_at_close`.
    ///
    /// Background threads may hold the volume for a moment until then. After this call, dropping the last
    /// handle closes the devices. The volume accepts no changes afterwards and nothing is written, even if
    /// the call fails. Does nothing on a read-only or closed volume.
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
        let outcome = synced.and_then(|()| self.remove_unused_groups(manager));
        if outcome.is_ok() {
            manager.release_freed();
            manager.discard.finish();
        }
        manager.close();
        outcome
    }

    /// Removes the block groups that the last commits have emptied, by one more commit. The next mount may be
    /// read-only and could not. The kernel's cleaner removes them as well, but later.
    fn remove_unused_groups(&self, manager: &TransactionManager) -> Result<()> {
        manager.release_freed();
        let is_changed = manager.stats().commits > 0 && !manager.cleaner.is_quiesced();
        if is_changed && !manager.space.unused_groups(manager.committed()).is_empty() {
            // There may be nothing else to commit.
            manager.cleaner.wake();
            manager.commit_running()?;
        }
        Ok(())
    }
}

/// The interval between checks for old lazy times.
const LOOK_FOR_TIMES: Duration = Duration::from_secs(15 * 60);

/// How long a background thread waits for the end of a group before it checks whether the volume is being
/// closed.
const FOR_GROUP: Duration = Duration::from_millis(250);

/// The main loop of a background thread.
type Duty = fn(&TransactionManager, &Weak<Volume>);

/// Commits on request. It must not wait for files, because the requesting thread may have them locked.
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
        // The volume may be closed during the wait, which ends this thread.
        let Some(_entered) = manager.gate.enter_first(FOR_GROUP) else {
            if pressed {
                manager.threads.want_commit();
            }
            continue;
        };
        if (pressed || manager.cleaner.is_needed()) && manager.commit_running().is_err() {
            return;
        }
        manager.release_freed();
        manager.retired_sets.free();
    }
}

/// Evicts orphans and writes old lazy times. At intervals it writes back all data and requests a commit.
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
        // An error that prevents this write also prevents the next commit, which reports it.
        let _ = volume.inodes.write_times_of_age(LONGEST);
        if left(last).is_zero() {
            last = clock::now();
            // The next sync of the file reports a write-back error.
            let _ = volume.files.write_back_all();
            volume.inodes.dirty.trim();
            manager.threads.want_commit();
        }
    }
}

/// Discards space that was freed some time ago. Does not wait for other threads.
fn discard(manager: &TransactionManager, _: &Weak<Volume>) {
    manager.discard_in_background();
}

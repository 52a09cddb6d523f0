//! When commits happen: on request, at intervals, and when the delta grows large.
//!
//! One thread commits, another does what may wait for files: so room in the delta, which operations wait for, never
//! has to wait for data on its way to a slow device.
//!
//! A sync that finds a commit on its way waits for it and then makes its own; all that come meanwhile
//! share that one.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ubtrfs_device::waiting;

use super::Volume;
use crate::error::{Error, Result};
use crate::roots::LONGEST;
use crate::transaction::{TransactionManager, Wakening};

const RESTING_TRIES: usize = 8;

impl Volume {
    /// Writes all buffered data and commits all that was done before the call. Returns when it is durable.
    ///
    /// Errors: read-only volume; a transaction that aborted, now or earlier; data of some file that is lost:
    /// all the rest is durable then.
    pub fn sync(&self) -> Result<()> {
        waiting::check()?;
        self.inodes.evict_orphans();
        let written = self.files.write_back_all();
        self.inodes.write_times()?;
        self.inodes.writer()?.commit_running()?;
        written
    }

    /// As `sync`, and leaves the volume alone from then on: deleted subvolumes and inodes without a name stay as they
    /// are until an operation changes something, or until the next opening.
    ///
    /// Errors: as `sync`.
    pub fn rest(&self) -> Result<()> {
        let writer = self.inodes.writer()?;
        // What was under way when it began to rest ends that.
        for _ in 0..RESTING_TRIES {
            writer.set_resting(true);
            self.sync()?;
            if writer.is_resting() {
                break;
            }
        }
        Ok(())
    }

    /// Whether it was told to rest, and nothing has been changed since.
    pub fn is_resting(&self) -> bool {
        self.inodes.writer().is_ok_and(|writer| writer.is_resting())
    }

    /// Commits until no deleted subvolume is left to free.
    ///
    /// Errors: as `sync`.
    pub fn free_deleted_subvolumes(&self) -> Result<()> {
        waiting::check()?;
        let writer = self.inodes.writer()?;
        // A commit under way may leave something.
        let is_unclean = || {
            let _alone = writer.committing.lock();
            writer.is_unclean()
        };
        while is_unclean() {
            self.sync()?;
        }
        Ok(())
    }

    /// Starts the threads that commit and write back at intervals. They end when the volume does.
    pub(crate) fn start_background(self: &Arc<Self>, interval: Duration) -> Result<()> {
        self.inodes.writer()?.set_commit_interval(interval);
        let threads: [(&str, Duty); 2] = [("ubtrfs-commit", commit), ("ubtrfs-write", write_back)];
        for (name, run) in threads {
            let writer = Arc::clone(self.inodes.writer()?);
            let volume = Arc::downgrade(self);
            let thread = thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&writer, &volume))
                .map_err(Error::Thread)?;
            self.inodes.writer()?.add_background(thread);
        }
        Ok(())
    }

    /// Commits what is left and ends the background threads, which may hold the volume for a moment: when the last
    /// handle is dropped after this, the devices are free. From then on the volume takes no changes and nothing is
    /// written, whatever came of it. Does nothing on a volume that is only read, or closed.
    ///
    /// Errors: as `sync`.
    pub fn close(&self) -> Result<()> {
        let Ok(writer) = self.inodes.writer() else {
            return Ok(());
        };
        if writer.is_closed() {
            return Ok(());
        }
        waiting::check()?;
        writer.stop_background();
        let synced = self.sync();
        let outcome = synced.and_then(|()| self.remove_spare_groups(writer));
        writer.close();
        outcome
    }

    /// Block groups that the last commits have emptied go with one more: whoever opens the volume next may only read it.
    /// The kernel's cleaner has them go as well, but only with time.
    fn remove_spare_groups(&self, writer: &TransactionManager) -> Result<()> {
        writer.release_freed();
        let is_changed = writer.stats().commits > 0 && !writer.is_resting();
        if is_changed && !writer.space.spare_groups(writer.committed()).is_empty() {
            // Nothing else may be left to commit.
            writer.set_unclean();
            writer.commit_running()?;
        }
        Ok(())
    }
}

/// How often it is looked whether times have been in memory for long.
const LOOK_FOR_TIMES: Duration = Duration::from_secs(15 * 60);

/// What a background thread does until the volume is closed.
type Duty = fn(&TransactionManager, &Weak<Volume>);

/// Commits when somebody asks. Waits for no file: those whose commit it is may have it locked.
fn commit(writer: &TransactionManager, volume: &Weak<Volume>) {
    loop {
        let pressed = match writer.next_wake() {
            Wakening::Stop => return,
            Wakening::Pressed => true,
            Wakening::Due => false,
        };
        let Some(_volume) = volume.upgrade() else {
            return;
        };
        if (pressed || writer.is_unclean()) && writer.commit_running().is_err() {
            return;
        }
        writer.release_freed();
        writer.discarded.free();
    }
}

/// Deletes inodes that were given up, writes times that are old; and at intervals writes all data back and asks for a commit.
fn write_back(writer: &TransactionManager, volume: &Weak<Volume>) {
    let mut last = Instant::now();
    let left = |last: Instant| writer.commit_interval().saturating_sub(last.elapsed());
    while writer.next_eviction(left(last).min(LOOK_FOR_TIMES)) {
        let Some(volume) = volume.upgrade() else {
            return;
        };
        volume.inodes.evict_orphans();
        // What keeps it from being written keeps the commit from being made, which tells.
        let _ = volume.inodes.write_times_of_age(LONGEST);
        if left(last).is_zero() {
            last = Instant::now();
            // A write-back error is reported by the next sync of the file.
            let _ = volume.files.write_back_all();
            volume.inodes.dirty.trim();
            writer.want_commit();
        }
    }
}

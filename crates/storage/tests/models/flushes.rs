//! Data writes and flushes.

#[path = "../../src/transaction/flush_order.rs"]
mod flush_order;

use std::sync::Arc;

use flush_order::FlushOrder;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::check;
use crate::sync::Ordering::Relaxed;

const WRITERS: usize = 2;

#[derive(Debug)]
struct Refused;

/// A volume. Accesses to its device and its state do not order anything.
#[derive(Default)]
struct Volume {
    order: FlushOrder,
    /// Data of each writer.
    cached: [AtomicBool; WRITERS],
    durable: [AtomicBool; WRITERS],
    has_new_superblock: AtomicBool,
    next_fails: AtomicBool,
    is_aborted: AtomicBool,
}

impl Volume {
    fn write(&self, writer: usize) {
        self.order
            .write(|| self.cached[writer].store(true, Relaxed));
    }

    fn flush_data(&self) -> Result<(), Refused> {
        let turn = self.order.begin(|| self.check_alive())?;
        if turn.is_needed() {
            turn.flush(|| self.flush_device(), |_| self.abort())
        } else {
            Ok(())
        }
    }

    fn write_superblock(&self) -> Result<(), Refused> {
        let write = || {
            self.has_new_superblock.store(true, Relaxed);
            let flushed = self.flush_caches();
            self.has_new_superblock.store(false, Relaxed);
            flushed
        };
        let turn = self.order.begin(|| self.check_alive())?;
        turn.flush(write, |_| self.abort())
    }

    fn flush_device(&self) -> Result<(), Refused> {
        // WRITER-6
        assert!(!self.has_new_superblock.load(Relaxed));
        self.flush_caches()
    }

    /// Flushes the data written before. A failure drops it, and the next flush does not report it.
    fn flush_caches(&self) -> Result<(), Refused> {
        // WRITER-5
        assert!(!self.is_aborted.load(Relaxed));
        let fails = self.next_fails.load(Relaxed);
        self.next_fails.store(false, Relaxed);
        for (cached, durable) in self.cached.iter().zip(&self.durable) {
            if cached.load(Relaxed) {
                cached.store(false, Relaxed);
                durable.store(!fails, Relaxed);
            }
        }
        if fails { Err(Refused) } else { Ok(()) }
    }

    fn check_alive(&self) -> Result<(), Refused> {
        if self.is_aborted.load(Relaxed) {
            Err(Refused)
        } else {
            Ok(())
        }
    }

    fn abort(&self) {
        self.is_aborted.store(true, Relaxed);
    }

    /// Writes and syncs. Returns whether that succeeded.
    fn sync(&self, writer: usize) -> bool {
        self.write(writer);
        let is_synced = self.flush_data().is_ok();
        // WRITER-4
        assert!(!is_synced || self.durable[writer].load(Relaxed));
        is_synced
    }
}

/// WRITER-4
#[test]
fn data_is_durable_after_a_sync_beside_others() {
    check(3, || {
        let volume = Arc::new(Volume::default());
        let [first, second] = [0, 1].map(|writer| {
            let volume = Arc::clone(&volume);
            thread::spawn(move || volume.sync(writer))
        });
        volume.write_superblock().unwrap();
        assert!(first.join().unwrap() && second.join().unwrap());
    });
}

/// WRITER-5
#[test]
fn no_sync_succeeds_by_a_flush_after_one_that_failed() {
    check(3, || {
        let volume = Arc::new(Volume::default());
        volume.next_fails.store(true, Relaxed);
        let other = Arc::clone(&volume);
        let syncing = thread::spawn(move || other.sync(0));
        let is_synced = volume.sync(1);
        assert!(!is_synced && !syncing.join().unwrap());
    });
}

/// WRITER-6
#[test]
fn no_flush_of_data_meets_a_superblock_that_is_not_durable() {
    check(5, || {
        let volume = Arc::new(Volume::default());
        let other = Arc::clone(&volume);
        let committing = thread::spawn(move || other.write_superblock());
        assert!(volume.sync(0));
        committing.join().unwrap().unwrap();
    });
}

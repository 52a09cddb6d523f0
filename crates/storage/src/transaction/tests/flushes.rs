//! Data flushes concurrent with commits and logs. The device reports a write error once, at the next flush, as the
//! kernel does for an open file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, Superblock};
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::{HookedDevice, Request};
use zerocopy::FromBytes;

use super::{Opened, new_device, open_on, xattr};
use crate::error::{Error, Result};
use crate::transaction::testing::{Failpoint, at_failpoints};
use crate::transaction::{LogOutcome, TransactionManager};

/// A way to make edits durable, with its steps.
struct Sync {
    run: fn(&Opened) -> Result<()>,
    blocks_written: Failpoint,
    blocks_durable: Failpoint,
}

const SYNCS: [Sync; 2] = [
    Sync {
        run: |opened| opened.manager.commit_running(),
        blocks_written: Failpoint::BlocksWritten,
        blocks_durable: Failpoint::BlocksDurable,
    },
    Sync {
        run: |opened| {
            let mut session = opened.manager.log_session()?;
            let (key, item) = xattr(256, "user.0", b"logged");
            session.put(&opened.tree, key, item.into());
            assert_eq!(session.write()?, LogOutcome::Written);
            Ok(())
        },
        blocks_written: Failpoint::LogBlocksWritten,
        blocks_durable: Failpoint::LogBlocksDurable,
    },
];

/// A volume with an edit, on a device with faults.
struct Volume {
    memory: Arc<MemDevice>,
    faults: Arc<FaultDevice>,
    hooks: Arc<HookedDevice>,
    opened: Opened,
}

impl Volume {
    fn new() -> Volume {
        let memory = new_device("");
        let faults = Arc::new(FaultDevice::new(memory.clone()));
        let hooks = Arc::new(HookedDevice::new(faults.clone()));
        let opened = open_on(hooks.clone(), 256 << 20, 128 << 20);
        opened.set(0, b"edited");
        Volume {
            memory,
            faults,
            hooks,
            opened,
        }
    }

    /// Makes a request of this kind wait at one barrier, and at another before it continues. Affects the next request
    /// after `armed` was set.
    fn pause_once(&self, kind: Request, armed: Arc<AtomicBool>) -> [Arc<Barrier>; 2] {
        let barriers = [(); 2].map(|()| Arc::new(Barrier::new(2)));
        let [is_there, continued] = barriers.clone();
        self.hooks.hook(move |request| {
            if request == kind && armed.swap(false, Ordering::Relaxed) {
                is_there.wait();
                continued.wait();
            }
        });
        barriers
    }

    fn fail_next_flush(&self) {
        let nth = self.faults.counts().flushes;
        self.faults.add(Fault::Flush { nth });
    }

    fn superblock(&self) -> Superblock {
        let mut bytes = vec![0; size_of::<Superblock>()];
        self.memory
            .read_at(&mut bytes, SUPERBLOCK_OFFSETS[0])
            .unwrap();
        Superblock::read_from_bytes(&bytes).unwrap()
    }
}

fn write_data(manager: &TransactionManager) {
    manager.space.reserve_data(4096).unwrap();
    let running = manager.running_transid();
    let allocated = manager.space.allocate_data(4096, 4096, None, running);
    let (start, _) = allocated.unwrap();
    manager.write_data(&[(start, &[1; 4096])]).unwrap();
}

fn assert_aborted(outcome: Result<()>) {
    assert!(matches!(outcome, Err(Error::Aborted(_))), "{outcome:?}");
}

/// WRITER-5. The flush of data may have covered the blocks.
#[test]
fn no_superblock_follows_a_failed_flush_of_data() {
    for sync in SYNCS {
        let volume = Volume::new();
        let manager = &volume.opened.manager;
        let before = volume.superblock();
        write_data(manager);
        let armed = Arc::new(AtomicBool::new(true));
        let [is_flushing, are_written] = volume.pause_once(Request::Flush, armed);
        volume.fail_next_flush();
        thread::scope(|scope| {
            let data = scope.spawn(|| manager.commit_through(manager.committed()));
            is_flushing.wait();
            let _hooked = at_failpoints(move |step| {
                if step == sync.blocks_written {
                    are_written.wait();
                }
                Ok(())
            });
            assert_aborted((sync.run)(&volume.opened));
            assert!(matches!(data.join().unwrap(), Err(Error::Device(_))));
        });
        let after = volume.superblock();
        assert_eq!(after.generation, before.generation);
        assert_eq!(after.log_root, before.log_root);
    }
}

/// WRITER-6. A data flush would receive the superblock's error instead of the commit.
#[test]
fn no_flush_of_data_hears_of_a_superblock_error() {
    for sync in SYNCS {
        let volume = Volume::new();
        let manager = &volume.opened.manager;
        let committed = manager.committed();
        let is_superblock = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&is_superblock);
        let [is_written, has_flushed] = volume.pause_once(Request::Write, armed);
        thread::scope(|scope| {
            let data = scope.spawn(|| {
                is_written.wait();
                volume.fail_next_flush();
                write_data(manager);
                if manager.data_flush.order.flushing.is_locked() {
                    has_flushed.wait();
                    return manager.commit_through(committed);
                }
                let outcome = manager.commit_through(committed);
                has_flushed.wait();
                outcome
            });
            let _hooked = at_failpoints(move |step| {
                is_superblock.fetch_or(step == sync.blocks_durable, Ordering::Relaxed);
                Ok(())
            });
            let outcome = (sync.run)(&volume.opened);
            assert!(matches!(outcome, Err(Error::Device(_))), "{outcome:?}");
            assert_aborted(data.join().unwrap());
        });
        assert_eq!(manager.committed(), committed);
    }
}

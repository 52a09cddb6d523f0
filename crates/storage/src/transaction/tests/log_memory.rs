//! Operations that begin while the memory for deltas is used up: by a log, or by reverted edits.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};

use super::{Opened, new_device, open_on, xattr};
use crate::transaction::{
    DataRef, DiskExtent, EditEstimate, LogOutcome, Reservation, TransactionHandle,
};

const DELTA_BYTES: u64 = 64 << 10;

/// Opens a volume whose commits, as operations see it, are made by another thread.
fn open_small() -> Opened {
    let opened = open_on(new_device(""), 256 << 20, DELTA_BYTES);
    opened.manager.threads.add_background(thread::spawn(|| ()));
    opened
}

/// Writes a log larger than the memory for deltas.
fn write_log(opened: &Opened) {
    let mut session = opened.manager.log_session().unwrap();
    for number in 0..2 * DELTA_BYTES / 1000 {
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 1000]);
        session.put(&opened.tree, key, item.into());
    }
    assert_eq!(session.write().unwrap(), LogOutcome::Written);
    drop(session);
    assert!(opened.manager.logs.bytes() > DELTA_BYTES);
}

/// The log belongs to the transaction that is being committed.
#[test]
fn log_of_a_commit_in_progress_is_not_charged_to_the_next_transaction() {
    let opened = open_small();
    let manager = &opened.manager;
    opened.set(0, b"edited");
    write_log(&opened);
    assert!(!manager.has_memory_for(EditEstimate::items(1)));
    let has_committed = manager.commit_with_pause(|| {
        assert!(manager.has_memory_for(EditEstimate::items(1)));
        opened.set(1, b"edited during the commit");
        assert!(
            !manager.threads.wake.lock().commit,
            "asks for another commit"
        );
    });
    assert!(has_committed.unwrap());
    assert_eq!(manager.logs.bytes(), 0);
    opened.close();
}

/// Starts an operation on a volume without memory for it, and calls `after` once it waits. Returns whether it
/// continued.
fn continues_after(opened: &Opened, after: impl FnOnce()) -> bool {
    let manager = &opened.manager;
    let waits = || manager.stats().delta_waits.count;
    let before = waits();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let outcome = manager.reserve_metadata(RootId::FS_TREE, EditEstimate::items(1));
            done.send(outcome.is_ok()).unwrap();
        });
        while waits() == before {
            thread::yield_now();
        }
        after();
        let outcome = is_done.recv_timeout(Duration::from_secs(20));
        if outcome.is_err() {
            manager.abort(&"an operation waits for a freeze without end");
        }
        outcome == Ok(true)
    })
}

/// There are no other edits, so no freeze happens.
#[test]
fn operation_waits_for_no_freeze_of_an_empty_transaction() {
    let opened = open_small();
    write_log(&opened);
    assert!(continues_after(&opened, || ()));
}

#[test]
fn operation_continues_when_a_freeze_finds_nothing() {
    const COUNT: u64 = 2000;
    let opened = open_small();
    let manager = &opened.manager;
    let data = DataRef {
        root: RootId::FS_TREE,
        ino: InodeNr(257),
        offset: 0,
    };
    let change = |change: fn(&TransactionHandle<'_>, DiskExtent, DataRef)| {
        let txn = manager.join_transaction(Reservation::already_made());
        let txn = txn.unwrap();
        for number in 0..COUNT {
            let start = Logical((1 << 40) + number * 4096);
            change(&txn, DiskExtent { start, len: 4096 }, data);
        }
    };
    change(|txn, extent, data| txn.add_data_ref(extent, data));
    assert!(!manager.has_memory_for(EditEstimate::items(1)));
    assert!(continues_after(&opened, || {
        change(|txn, extent, data| txn.drop_data_ref(extent, data));
        manager.commit_running().unwrap();
    }));
}

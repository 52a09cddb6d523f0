//! Operations that wait until a freeze makes room in the memory for deltas.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{DEVICE_BYTES, device_of, open_on, xattr};
use crate::transaction::EditEstimate;
use crate::transaction::stripes::my_stripe;
use ubtrfs_format::ids::RootId;

const DELTA_BYTES: u64 = 1 << 20;
const WAITERS: u64 = 24;
/// Longer than any wait in these tests.
const AT_MOST: Duration = Duration::from_secs(20);

fn wait_until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < AT_MOST);
        thread::sleep(Duration::from_millis(1));
    }
}

/// An operation aborts within a transaction, while a freeze waits for it and another operation waits for the freeze.
#[test]
fn an_operation_aborts_while_a_freeze_waits_for_it() {
    let device = device_of(DEVICE_BYTES, "");
    // Leaked rather than in a scope, so that a failing test ends.
    let opened = Box::leak(Box::new(open_on(device, 256 << 20, DELTA_BYTES)));
    let opened = &*opened;
    let manager = &opened.manager;
    // It does not commit: the freeze in this test is the only one.
    let (ends_background, ended) = mpsc::channel::<()>();
    manager
        .threads
        .add_background(thread::spawn(move || ended.recv().unwrap_or(())));
    // Does not wait for memory.
    let enter = |cost| {
        let reservation = manager.try_reserve(cost).unwrap();
        manager.join_transaction(reservation).unwrap()
    };
    let edits = 2 * DELTA_BYTES / 4096;
    let filling = enter(EditEstimate::items(edits).bytes(2 * DELTA_BYTES));
    for number in 0..edits {
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 4000]);
        filling.put(&opened.tree, key, item);
    }
    drop(filling);
    let cost = EditEstimate::items(1);
    let within = enter(cost);
    // Enough threads that one of them uses the same stripe as the operation.
    let (sender, receiver) = mpsc::channel();
    let (tells_stripe, stripes) = mpsc::channel();
    for _ in 0..WAITERS {
        let (sender, tells_stripe) = (sender.clone(), tells_stripe.clone());
        thread::spawn(move || {
            tells_stripe.send(my_stripe()).unwrap_or(());
            let refused = manager.reserve_metadata(RootId::FS_TREE, cost).err();
            sender.send(refused.map(|error| error.to_string()))
        });
    }
    wait_until(|| manager.threads.waiting_for_notice() == WAITERS);
    thread::spawn(|| manager.commit_running());
    // The freeze waits for the operation. It has closed the stripes before this one, and blocks new entries into this
    // one.
    wait_until(|| manager.running.is_closed_to_this_thread());
    let mut kept_out = 0;
    for stripe in stripes.iter().take(WAITERS as usize) {
        kept_out += u64::from(stripe <= my_stripe());
    }
    // The waiting threads check a freeze in progress: some are blocked by it, the others wait again.
    manager.threads.notify_frozen();
    wait_until(|| manager.threads.waiting_for_notice() == WAITERS - kept_out);
    let (aborted, aborts) = mpsc::channel();
    thread::spawn(move || {
        manager.abort(&"an error within an operation");
        aborted.send(())
    });
    aborts
        .recv_timeout(AT_MOST)
        .expect("the operation waits for itself");
    drop(within);
    for _ in 0..WAITERS {
        let refused = receiver.recv_timeout(AT_MOST).unwrap();
        assert!(refused.is_none_or(|error| error.contains("an error within an operation")));
    }
    drop(ends_background);
}

//! The sleep of the thread that switches policies.

#[path = "../../src/uring/switcher_sleep.rs"]
mod sleep;

use std::sync::Arc;
use std::time::Duration;

use loom::thread::yield_now;
use sleep::{REQUESTS_A_LOOK, ServedRequests, SwitcherSleep};

use crate::sync::thread::spawn;
use crate::sync::{AtomicBool, Ordering};

const PAUSE: Duration = Duration::from_millis(5);

/// SLEEP-1
#[test]
fn an_end_ends_each_sleep_and_pause() {
    loom::model(|| {
        let switcher = Arc::new(SwitcherSleep::default());
        let own = Arc::clone(&switcher);
        let (handle, thread) = spawn(move || {
            loop {
                own.sleep();
                if own.pause(PAUSE) {
                    return;
                }
            }
        });
        switcher.set_thread(thread);
        switcher.end();
        handle.join().unwrap();
    });
}

/// SLEEP-2
#[test]
fn requests_after_the_thread_fell_asleep_wake_it() {
    loom::model(|| {
        let switcher = Arc::new(SwitcherSleep::default());
        let own = Arc::clone(&switcher);
        let awake = Arc::new(AtomicBool::new(false));
        let own_awake = Arc::clone(&awake);
        let (handle, thread) = spawn(move || {
            own.sleep();
            own_awake.store(true, Ordering::Release);
        });
        switcher.set_thread(thread);
        let queue = ServedRequests::default();
        // The thread may miss these.
        queue.add(REQUESTS_A_LOOK + 1, &switcher);
        while !switcher.is_asleep() && !awake.load(Ordering::Acquire) {
            yield_now();
        }
        queue.add(REQUESTS_A_LOOK, &switcher);
        handle.join().unwrap();
    });
}

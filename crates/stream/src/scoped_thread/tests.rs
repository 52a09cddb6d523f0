//! Simulates a system that cannot create threads.

use std::cell::Cell;
use std::io;
use std::thread;

use super::start;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with thread creation disabled on this thread.
pub(crate) fn without_threads<T>(work: impl FnOnce() -> T) -> T {
    REFUSES.set(true);
    let done = work();
    REFUSES.set(false);
    done
}

pub(super) fn check() -> io::Result<()> {
    if REFUSES.get() {
        Err(io::ErrorKind::WouldBlock.into())
    } else {
        Ok(())
    }
}

#[test]
fn threads_have_their_names() {
    let name = thread::scope(|scope| {
        let named = start(scope, "a name", || {
            thread::current().name().map(str::to_owned)
        });
        named.unwrap().join().unwrap()
    });
    assert_eq!(name.as_deref(), Some("a name"));
    let refused = without_threads(|| thread::scope(|scope| start(scope, "none", || ()).is_err()));
    assert!(refused);
}

//! Runs work that must end in time, and may panic.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Far longer than any work here takes.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// Runs `work` in a separate thread. `what` identifies it in a panic.
pub(crate) fn in_time<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, end) = channel();
    let thread = thread::spawn(move || done.send(work()));
    match end.recv_timeout(HANGS_AFTER) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().err();
            let message = panic.and_then(|panic| panic.downcast::<String>().ok());
            panic!("{what}: panics: {}", message.unwrap_or_default());
        }
    }
}

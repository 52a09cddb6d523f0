//! The atomics and threads of the code that `tests/models` tests: the models compile it with loom's instead.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) mod thread {
    use std::time::Duration;

    pub(crate) use std::thread::{Thread, park};

    /// Waits until this thread is unparked, at most for `time`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that parks for a time"
    )]
    pub(crate) fn park_timeout(time: Duration) {
        std::thread::park_timeout(time);
    }
}

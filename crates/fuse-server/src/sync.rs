//! The atomics of the code that `tests/models` tests: the models compile it with loom's instead.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

//! The atomics and locks of group sync. The tests in `tests/models` replace them by those of loom.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

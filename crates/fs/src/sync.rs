//! The atomics and locks of group sync. The tests in `tests/models` replace them by their loom versions.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

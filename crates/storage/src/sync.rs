//! The atomics and locks of the lock-free counters. The tests in `tests/models` replace this module with loom's types.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

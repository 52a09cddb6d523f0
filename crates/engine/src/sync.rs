//! The atomics and locks of syncs side by side. The tests in `tests/models` compile these with those of loom in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

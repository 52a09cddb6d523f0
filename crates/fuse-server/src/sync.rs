//! The atomics and threads of what `tests/models` tries: the models compile these files with those of loom in their place.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::thread;

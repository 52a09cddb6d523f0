//! The atomics of what `tests/models` tries: the models compile these files with the atomics of loom in their place.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

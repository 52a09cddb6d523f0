//! The atomics of loom, limited to the subset that the sources use.

pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};

//! Threads that outlive the function that starts them. `clippy.toml` requires starting them here, so that each has a
//! name.
//!
//! Not here: scoped threads, which end with their function.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. The kernel keeps the first 15 bytes of its name.
///
/// # Errors
/// The system cannot create a thread.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that starts threads"
)]
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}

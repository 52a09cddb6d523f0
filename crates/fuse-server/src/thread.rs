//! Threads that outlive the function that starts them. `clippy.toml` requires that all are started here, so that each
//! has a name.
//!
//! Not here: threads of the btrfs layers (`ubtrfs_device::thread`), on which this crate does not depend.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. The kernel displays the first 15 bytes of its name.
///
/// # Errors
/// The system cannot create a thread.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that starts threads"
)]
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}

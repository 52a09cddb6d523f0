//! Starting threads that end with the function that starts them. Unlike `Scope::spawn`, this returns an error where the
//! system has no thread to give. Callers then do the work themselves.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::without_threads;

/// Starts a thread. The kernel shows the first 15 bytes of its name.
///
/// # Errors
/// The system has no thread to give.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    #[cfg(test)]
    tests::check()?;
    Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, work)
}

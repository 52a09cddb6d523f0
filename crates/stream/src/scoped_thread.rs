//! Scoped threads. Unlike `Scope::spawn`, starting one returns an error if the system cannot create a thread. Callers
//! then do the work themselves.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::without_threads;

/// Starts a thread. The kernel keeps the first 15 bytes of its name.
///
/// # Errors
/// The system cannot create a thread.
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

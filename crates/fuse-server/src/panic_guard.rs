//! A panic in one request fails that request and nothing else.
//!
//! Each unwound transport thread is lost, and a mount without threads hangs every program that touches it. No bytes of
//! a volume may cause a panic, so this guards against bugs. It is correct only if a verb that panics has changed
//! nothing. Our verbs satisfy that: they change data only through a transaction, which they join when all changes are
//! known.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::request::{Errno, Result, Verb};

/// Executes a request, and keeps its panics within it.
#[inline]
pub(crate) fn guard<T>(verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
        // The panic message is on standard error, or wherever the hook writes it.
        tracing::error!("a request ({}) panicked", verb.name());
        Err(Errno::IO)
    })
}

//! A panic in one request fails that request and nothing else.
//!
//! A thread of a transport that unwinds is a thread less, and a mount without threads hangs every program that
//! touches it. No bytes of a volume may cause a panic, so this is for mistakes of ours. It is right only if a verb
//! that panics has changed nothing. With ours that holds: they change things through a transaction alone, which
//! they join when they know all that they will do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::request::{Errno, Result, Verb, Watch};

/// Keeps panics within the request.
#[derive(Debug)]
pub(crate) struct PanicGuard;

impl Watch for PanicGuard {
    fn around<T>(&self, verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
            // The panic's own message is on standard error, or wherever the hook puts it.
            tracing::error!("a request ({}) panicked", verb.name());
            Err(Errno::IO)
        })
    }
}

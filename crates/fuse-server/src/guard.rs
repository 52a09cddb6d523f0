//! A panic in one request fails that request and nothing else.
//!
//! A thread of a transport that unwinds is a thread less, and a mount without threads hangs whoever
//! touches it. No bytes of a volume may cause a panic, so this is for mistakes of ours, and it is right
//! only because a verb changes nothing but through a transaction, which it enters when it knows all it will do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::request::{Errno, Result, Verb, Watch};

/// Keeps panics within the request.
#[derive(Debug)]
pub(crate) struct Guard;

impl Watch for Guard {
    fn around<T>(&self, verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
            // The panic's own message is on standard error, or wherever the hook puts it.
            tracing::error!("a request ({}) panicked", verb.name());
            Err(Errno::IO)
        })
    }
}

//! Tokens that show a commit when no reader uses the previous state any longer.
//!
//! Every search and every cursor holds the token that was current when it began. A commit installs a new token and
//! keeps the old one. Once the commit has the last reference, no reader can reach a block that it freed.
//!
//! Invariants
//! - EPOCH-1: a reader takes the token before the layers of its tree; a commit publishes the layers before it changes
//!   the token. So a holder of the new token sees the new layers.
//! - EPOCH-2: readers may release tokens in any order. Space freed by a commit is reused only after its own token and
//!   all older ones are released.
//!
//! Locks: none.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// One state of the volume, alive while any reader holds it.
#[derive(Debug)]
pub struct Epoch {
    number: u64,
}

impl Epoch {
    /// Returns the number of epochs before this one.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The current token.
#[derive(Debug)]
pub(crate) struct Epochs {
    current: ArcSwap<Epoch>,
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            current: ArcSwap::from_pointee(Epoch { number: 0 }),
        }
    }

    pub(crate) fn hold(&self) -> Arc<Epoch> {
        self.current.load_full()
    }

    /// Returns a reference for the duration of one search. It updates no shared counter until the token changes; the
    /// change converts it to a counted reference.
    pub(crate) fn hold_briefly(&self) -> Guard<Arc<Epoch>> {
        self.current.load()
    }

    /// Installs a new token and returns the old one, which the commit keeps (EPOCH-2). Must not be called
    /// concurrently.
    pub(crate) fn advance(&self) -> Arc<Epoch> {
        let number = self.current.load().number + 1;
        self.current.swap(Arc::new(Epoch { number }))
    }
}

#[cfg(test)]
mod tests;

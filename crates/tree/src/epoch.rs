//! Tokens by which a commit knows that no reader looks at the state before it any more.
//!
//! Every search and every cursor holds the token that was current when it began. A commit puts a new token in place
//! and keeps the old one. When the commit's is the only hold left, no reader can reach a block that it freed.
//!
//! Invariants
//! - EPOCH-1: a reader takes the token first and the layers of its tree after; a commit publishes the
//!   layers first and changes the token after. So a holder of the new token sees the new layers.
//! - EPOCH-2: tokens are outlived in any order; space freed by a commit waits for its own token and for
//!   all older ones.
//!
//! Locks: none.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// One state of the volume, as long as any reader holds it.
#[derive(Debug)]
pub struct Epoch {
    number: u64,
}

impl Epoch {
    /// Returns how many came before it.
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

    /// Returns a hold for the length of one search. It shares no counter with other threads until the token changes;
    /// the change turns it into a counted one.
    pub(crate) fn hold_briefly(&self) -> Guard<Arc<Epoch>> {
        self.current.load()
    }

    /// Puts a new token in place and returns the old one, which the commit keeps (EPOCH-2). One thread at a time.
    pub(crate) fn advance(&self) -> Arc<Epoch> {
        let number = self.current.load().number + 1;
        self.current.swap(Arc::new(Epoch { number }))
    }
}

#[cfg(test)]
mod tests;

//! Memory for buffered data: how much of it there is, and what was let go of lately.
//!
//! Memory that comes fresh from the system costs a page fault for each page, more than copying the page's bytes
//! does. So full windows that were written back serve the next ones.
//!
//! Locks: that of the free windows, a leaf.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::pieces::WINDOW_BYTES;

/// How many windows are kept.
const KEPT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Windows {
    buffered_bytes: AtomicU64,
    free: Mutex<Vec<Vec<u8>>>,
}

impl Windows {
    /// Bytes of all pieces, in flight or not.
    pub(super) fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn charge(&self, grown: i64) {
        let grown = grown.cast_unsigned();
        self.buffered_bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// Empty, with room for a whole window.
    pub(super) fn take(&self) -> Vec<u8> {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| Vec::with_capacity(WINDOW_BYTES as usize))
    }

    pub(super) fn give_back(&self, pieces: impl Iterator<Item = Vec<u8>>) {
        for mut piece in pieces {
            if piece.capacity() != WINDOW_BYTES as usize {
                continue;
            }
            piece.clear();
            let mut free = self.free.lock();
            if free.len() < KEPT {
                free.push(piece);
            }
        }
    }
}

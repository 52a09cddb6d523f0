//! Memory for buffered data: the bytes in use, and recently freed windows.
//!
//! Fresh memory costs a page fault per page, which takes longer than copying the page. So the memory of full
//! windows is recycled after their write-back.
//!
//! Locks: the mutex of the free windows is a leaf.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Bytes of a window: the most that the kernel compresses into one extent.
pub(crate) const WINDOW_BYTES: u64 = 128 << 10;

/// Counts the buffered bytes of a volume, and recycles the memory of full windows.
#[derive(Debug)]
pub(crate) struct BufferPool {
    buffered_bytes: AtomicU64,
    free: Mutex<Free>,
    /// The most windows that are kept.
    most: usize,
}

#[derive(Debug, Default)]
struct Free {
    windows: Vec<Vec<u8>>,
    /// The smallest number of free windows since the last `trim`.
    idle: usize,
}

impl BufferPool {
    /// Creates a pool for at most `budget_bytes` of buffered data.
    pub(crate) fn new(budget_bytes: u64) -> BufferPool {
        BufferPool {
            buffered_bytes: AtomicU64::new(0),
            free: Mutex::default(),
            most: usize::try_from(budget_bytes / WINDOW_BYTES).unwrap_or(usize::MAX),
        }
    }

    /// Returns the bytes of all pieces, including those in flight.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(&self, grown: i64) {
        let grown = grown.cast_unsigned();
        self.buffered_bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// Returns an empty buffer with room for a whole window.
    pub(crate) fn take(&self) -> Vec<u8> {
        let free = {
            let mut free = self.free.lock();
            let taken = free.windows.pop();
            free.idle = free.idle.min(free.windows.len());
            taken
        };
        free.unwrap_or_else(|| Vec::with_capacity(WINDOW_BYTES as usize))
    }

    /// Recycles the buffers that have room for a whole window, up to the limit of kept windows.
    pub(crate) fn release(&self, buffers: impl Iterator<Item = Vec<u8>>) {
        for mut buffer in buffers {
            if buffer.capacity() != WINDOW_BYTES as usize {
                continue;
            }
            buffer.clear();
            let mut free = self.free.lock();
            if free.windows.len() < self.most {
                free.windows.push(buffer);
            }
        }
    }

    /// Frees the memory of windows that were not needed since the last call.
    pub(crate) fn trim(&self) {
        let idle = {
            let mut free = self.free.lock();
            let left = free.windows.len() - free.idle;
            free.idle = left;
            free.windows.split_off(left)
        };
        drop(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(buffer_pool: &BufferPool) -> usize {
        buffer_pool.free.lock().windows.len()
    }

    #[test]
    fn windows_stay_up_to_the_budget_while_they_are_used() {
        let buffer_pool = BufferPool::new(3 * WINDOW_BYTES);
        let taken: Vec<_> = (0..5).map(|_| buffer_pool.take()).collect();
        buffer_pool.release(taken.into_iter());
        assert_eq!(count(&buffer_pool), 3);
        buffer_pool.trim();
        for _ in 0..3 {
            let taken = [buffer_pool.take(), buffer_pool.take()];
            buffer_pool.release(taken.into_iter());
            buffer_pool.trim();
            assert_eq!(count(&buffer_pool), 2);
        }
        buffer_pool.trim();
        assert_eq!(count(&buffer_pool), 0);
    }
}

//! The size and number of requests, by the memory that their buffers may take.
//!
//! A connection's buffers are allocated when large requests arrive, and stay. At worst every slot has had a large one.

/// The limits of requests in size, number and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The largest payload of a request or an answer.
    pub(crate) request_bytes: usize,
    /// The maximum number of requests in flight without a waiting client (read-ahead, writeback). All of them may wait
    /// for a slow device. A transport accepts many more requests, so that clients always find a free slot.
    pub(crate) background: u16,
    memory_bytes: u64,
}

/// The kernel takes at most 256 pages of 4 KiB in a request.
pub(crate) const REQUEST_MAX_BYTES: usize = 1 << 20;
/// The kernel's payload limit by default.
pub(crate) const REQUEST_SMALL_BYTES: usize = 1 << 17;
const BACKGROUND_MAX: u16 = 32;
/// The minimum number of background requests that a mount lets the kernel send at once.
pub const BACKGROUND_MIN: u16 = 16;
/// With less memory, fewer requests are in flight.
const ENOUGH_BYTES: u64 = 128 << 20;
/// The fraction of the memory for buffers of requests through `/dev/fuse`: 1/`SHARE`.
const SHARE: u64 = 8;
/// The fraction for the buffers of io_uring. Most are rarely used: the kernel reuses the latest one first.
const RINGS_SHARE: u64 = 4;

impl Capacity {
    /// Computes the limits of a mount for this amount of memory.
    pub fn of(memory_bytes: u64) -> Self {
        let background = if memory_bytes < ENOUGH_BYTES {
            BACKGROUND_MIN
        } else {
            BACKGROUND_MAX
        };
        let capacity = Self {
            request_bytes: REQUEST_MAX_BYTES,
            background,
            memory_bytes,
        };
        capacity.with_buffers(capacity.places(), SHARE)
    }

    /// Returns the number of requests that are accepted at once.
    pub(crate) fn places(&self) -> usize {
        usize::from(self.background) * 3
    }

    /// Returns the number of extra threads, which are started for blocked requests and end after them.
    pub(crate) fn surplus_threads(&self) -> usize {
        usize::from(self.background) * 5 / 2
    }

    /// Returns the capacity for this number of io_uring queues, or `None` if their buffers would take too much memory.
    pub(crate) fn of_queues(&self, queues: u16) -> Option<Self> {
        let buffers = self.places() * usize::from(queues);
        let capacity = self.with_buffers(buffers, RINGS_SHARE);
        let worst = (capacity.request_bytes as u64).saturating_mul(buffers as u64);
        (worst <= self.memory_bytes / RINGS_SHARE).then_some(capacity)
    }

    /// Returns the capacity with requests small enough for `count` buffers to fit, down to a minimum.
    fn with_buffers(self, count: usize, share: u64) -> Self {
        let fit = self.memory_bytes / share / count.max(1) as u64;
        let fit = usize::try_from(fit).unwrap_or(usize::MAX);
        let most = self.request_bytes;
        let fit = fit.clamp(REQUEST_SMALL_BYTES.min(most), most);
        Self {
            request_bytes: 1 << fit.ilog2(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_large_as_the_kernel_takes_where_there_is_memory() {
        let large = Capacity::of(24 << 30);
        assert_eq!(large.request_bytes, REQUEST_MAX_BYTES);
        assert_eq!(large.background, BACKGROUND_MAX);
        assert_eq!(large.of_queues(2), Some(large));
    }

    #[test]
    fn buffers_are_a_share_of_little_memory() {
        for memory in [64 << 20, 128 << 20, 256 << 20, 1 << 30] {
            let some = Capacity::of(memory);
            let worst = (some.places() * some.request_bytes) as u64;
            assert!(worst <= memory / SHARE, "{some:?}");
            assert!(some.surplus_threads() > 2 * usize::from(some.background));
            assert!(some.places() > 2 * usize::from(some.background));
        }
        assert_eq!(Capacity::of(0).request_bytes, REQUEST_SMALL_BYTES);
    }

    #[test]
    fn many_queues_take_smaller_requests_or_are_too_many() {
        let some = Capacity::of(1 << 30);
        assert_eq!(some.of_queues(2).map(|it| it.request_bytes), Some(1 << 20));
        assert_eq!(some.of_queues(8).map(|it| it.request_bytes), Some(1 << 18));
        assert_eq!(some.of_queues(64), None);
    }
}

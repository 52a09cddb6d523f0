//! How large requests are and how many there can be, by the memory that their buffers may take.
//!
//! The buffers of a connection are taken when large requests come, and stay. At worst every place for a request has
//! had a large one.

/// The limits of requests in size, number and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The largest payload of a request or an answer.
    pub(crate) request_bytes: usize,
    /// Requests without a waiting client (read-ahead, write-back) in flight at once. All of them may wait for a slow
    /// device. A transport takes in many more requests, so that there is always a place for one of a waiting client.
    pub(crate) background: u16,
    memory_bytes: u64,
}

/// The kernel takes at most 256 pages of 4 KiB in a request.
pub(crate) const REQUEST_MAX_BYTES: usize = 1 << 20;
/// The payload that the kernel takes where it was not asked for more.
pub(crate) const REQUEST_SMALL_BYTES: usize = 1 << 17;
const BACKGROUND_MAX: u16 = 32;
/// The least number of requests that a mount has the kernel send at once in the background.
pub const BACKGROUND_MIN: u16 = 16;
/// With less, fewer requests are in flight.
const ENOUGH_BYTES: u64 = 128 << 20;
/// The part of the memory that all buffers of requests through `/dev/fuse` may take: one in so many.
const SHARE: u64 = 8;
/// The part for the buffers of io_uring. Most are rarely used: the kernel takes the one that it used last.
const RINGS_SHARE: u64 = 4;

impl Capacity {
    /// Computes what a mount may take that has so much memory.
    pub fn of(memory_bytes: u64) -> Self {
        let background = match memory_bytes < ENOUGH_BYTES {
            true => BACKGROUND_MIN,
            false => BACKGROUND_MAX,
        };
        let capacity = Self {
            request_bytes: REQUEST_MAX_BYTES,
            background,
            memory_bytes,
        };
        capacity.with_buffers(capacity.places(), SHARE)
    }

    /// Returns how many requests are taken in at once.
    pub(crate) fn places(&self) -> usize {
        usize::from(self.background) * 3
    }

    /// Returns the number of threads beside the lasting ones, which come and go with requests that wait.
    pub(crate) fn surplus_threads(&self) -> usize {
        usize::from(self.background) * 5 / 2
    }

    /// Returns the capacity for so many queues of io_uring; None if their buffers may take too much.
    pub(crate) fn of_queues(&self, queues: u16) -> Option<Self> {
        let buffers = self.places() * usize::from(queues);
        let capacity = self.with_buffers(buffers, RINGS_SHARE);
        let worst = (capacity.request_bytes as u64).saturating_mul(buffers as u64);
        (worst <= self.memory_bytes / RINGS_SHARE).then_some(capacity)
    }

    /// Returns the capacity with requests that are small enough for so many buffers to fit, within reason.
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

//! Batches of reads, and of discards on block devices, at queue depth through io_uring.
//!
//! Rings are created on demand and kept for later batches of any device. If io_uring is missing or forbidden, or for
//! a request that fails in the ring, the plain system call is used. So callers only see errors of pread and
//! BLKDISCARD. Rings support discards since Linux 6.12.
//!
//! Writes only reach the page cache, which is fast. A ring would only add a hand-over to another thread.
//!
//! Invariants
//! - URING-1: no function returns while the kernel may still access a buffer of its batch.
//! - URING-2: a ring is used by one batch at a time, and only in the process that created it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::io::retry_on_intr;

use crate::block_discard;

#[cfg(test)]
mod tests;

/// Maximum requests in flight; a greater depth was not faster on the measured devices.
const DEPTH: u32 = 64;
/// Maximum number of rings kept for later batches.
const KEPT: usize = 8;
/// Minimum number of reads for which a ring pays off. Two discards are enough, because devices are slow at them.
pub(crate) const WORTHWHILE: usize = 4;

/// `BLOCK_URING_CMD_DISCARD`, `_IO(0x12, 0)` of linux/blkdev.h.
const DISCARD: u32 = 0x12 << 8;

/// Set when the kernel permanently rejects rings.
static UNAVAILABLE: AtomicBool = AtomicBool::new(false);
static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

struct Ring {
    ring: IoUring,
    /// The process that created the ring: a forked child must not touch it.
    pid: u32,
}

/// One read or discard of a batch.
pub(crate) struct Request<'a> {
    file: &'a File,
    offset: u64,
    work: Work<'a>,
    /// Bytes already read.
    done: usize,
    result: &'a mut io::Result<()>,
    /// Whether `result` is final.
    completed: bool,
}

enum Work<'a> {
    Read(&'a mut [u8]),
    Discard { len: u64 },
}

impl<'a> Request<'a> {
    pub(crate) fn read(
        file: &'a File,
        offset: u64,
        buf: &'a mut [u8],
        result: &'a mut io::Result<()>,
    ) -> Self {
        Self::new(file, offset, Work::Read(buf), result)
    }

    /// Creates a discard of a part of a block device.
    pub(crate) fn discard(
        file: &'a File,
        offset: u64,
        len: u64,
        result: &'a mut io::Result<()>,
    ) -> Self {
        Self::new(file, offset, Work::Discard { len }, result)
    }

    fn new(file: &'a File, offset: u64, work: Work<'a>, result: &'a mut io::Result<()>) -> Self {
        Self {
            file,
            offset,
            work,
            done: 0,
            result,
            completed: false,
        }
    }

    fn is_empty(&self) -> bool {
        match &self.work {
            Work::Read(buf) => buf.is_empty(),
            Work::Discard { len } => *len == 0,
        }
    }

    fn complete(&mut self, result: io::Result<()>) {
        *self.result = result;
        self.completed = true;
    }

    /// Handles the kernel's result for a part of the request. Returns true if the rest must be submitted.
    fn take(&mut self, answer: i32) -> bool {
        match (&self.work, usize::try_from(answer)) {
            (Work::Read(buf), Ok(read)) if read > 0 => {
                self.done += read;
                if self.done >= buf.len() {
                    self.complete(Ok(()));
                }
                !self.completed
            }
            (Work::Discard { .. }, Ok(_)) => {
                self.complete(Ok(()));
                false
            }
            // The plain call determines the error, or does the work that this kernel's ring does not support.
            _ => {
                self.run_plain();
                false
            }
        }
    }

    fn run_plain(&mut self) {
        let result = match &mut self.work {
            Work::Read(buf) => {
                let at = self.offset + self.done as u64;
                self.file.read_exact_at(&mut buf[self.done..], at)
            }
            Work::Discard { len } => {
                let done = retry_on_intr(|| block_discard::discard(self.file, self.offset, *len));
                done.map_err(io::Error::from)
            }
        };
        self.complete(result);
    }

    /// Creates the submission entry for the rest of the request.
    fn entry(&mut self, index: usize) -> squeue::Entry {
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match &mut self.work {
            Work::Read(buf) => {
                let at = self.offset + self.done as u64;
                let rest = &mut buf[self.done..];
                // The limit is below the kernel's own (2 GiB); the rest is submitted as another read.
                let len = rest.len().min(1 << 30) as u32;
                let read = opcode::Read::new(fd, rest.as_mut_ptr(), len);
                read.offset(at).build()
            }
            Work::Discard { len } => {
                // The kernel reads the offset from `addr` and the length from `addr3`, which overlaps the start of
                // the command's data.
                let mut data = [0; 16];
                data[..8].copy_from_slice(&len.to_ne_bytes());
                let discard = opcode::UringCmd16::new(fd, DISCARD);
                discard.addr(Some(self.offset)).cmd(data).build()
            }
        };
        entry.user_data(index as u64)
    }
}

/// Executes all requests and stores each outcome in its `result`.
pub(crate) fn run(requests: &mut [Request<'_>]) {
    let is_worthwhile = match requests {
        [
            Request {
                work: Work::Discard { .. },
                ..
            },
            _,
            ..,
        ] => true,
        _ => requests.len() >= WORTHWHILE,
    };
    let ring = is_worthwhile.then(take_ring).flatten();
    if let Some(ring) = run_with(ring, requests) {
        give_back(ring);
    }
}

/// Executes the requests, in the ring if there is one. Returns the ring if it can be reused.
fn run_with(ring: Option<Ring>, requests: &mut [Request<'_>]) -> Option<Ring> {
    let ring = ring.and_then(|mut ring| run_on(&mut ring.ring, requests).then_some(ring));
    for request in requests.iter_mut().filter(|request| !request.completed) {
        request.run_plain();
    }
    ring
}

fn take_ring() -> Option<Ring> {
    // URING-2
    let pid = std::process::id();
    if let Some(ring) = RINGS.lock().pop() {
        if ring.pid == pid {
            return Some(ring);
        }
        // Unmapping it here would be safe, but its descriptor is shared with the parent.
        std::mem::forget(ring);
    }
    if UNAVAILABLE.load(Ordering::Relaxed) {
        return None;
    }
    match IoUring::new(DEPTH) {
        Ok(ring) => Some(Ring { ring, pid }),
        Err(error) => {
            // Out of memory or descriptors is temporary; ENOSYS, EPERM (sysctl, seccomp) and others are not.
            let passing = matches!(
                error
                    .raw_os_error()
                    .map(rustix::io::Errno::from_raw_os_error),
                Some(
                    rustix::io::Errno::NOMEM | rustix::io::Errno::MFILE | rustix::io::Errno::NFILE
                )
            );
            if !passing && !UNAVAILABLE.swap(true, Ordering::Relaxed) {
                tracing::debug!(%error, "no io_uring; asking devices one by one");
            }
            None
        }
    }
}

fn give_back(ring: Ring) {
    let mut rings = RINGS.lock();
    if rings.len() < KEPT {
        rings.push(ring);
    }
}

/// Runs the requests. Returns false if the ring must not be reused. Requests that are not completed were either not
/// submitted or are no longer in the kernel.
fn run_on(ring: &mut IoUring, requests: &mut [Request<'_>]) -> bool {
    let mut next = 0;
    let mut again: Vec<usize> = Vec::new();
    // Number of entries in the queue, whether or not the kernel has consumed them.
    let mut open = 0;
    loop {
        while open < DEPTH as usize {
            let index = match again.pop() {
                Some(index) => index,
                None if next < requests.len() => {
                    next += 1;
                    next - 1
                }
                None => break,
            };
            let request = &mut requests[index];
            if request.is_empty() {
                request.complete(Ok(()));
                continue;
            }
            let entry = request.entry(index);
            // SAFETY: `requests` borrows the buffer of a read for longer than this function runs, and nothing else
            // accesses it in that time. The function returns only after the entry has completed or was not consumed
            // (URING-1). A discard has no buffer.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                // The queue is full: submit first.
                again.push(index);
                break;
            }
            open += 1;
        }
        if open == 0 {
            return true;
        }
        // Wait for a single completion, so that new requests refill the queue early.
        if let Err(error) = ring.submit_and_wait(1)
            && !is_passing(&error)
        {
            tracing::debug!(%error, "io_uring fails; asking devices one by one");
            abandon(ring, requests, open);
            return false;
        }
        for completion in ring.completion() {
            open -= 1;
            let index = completion.user_data() as usize;
            if requests[index].take(completion.result()) {
                again.push(index);
            }
        }
    }
}

/// Returns whether an error is temporary: interrupted, or completions must be consumed first.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INTR | Errno::BUSY | Errno::AGAIN)
    )
}

/// Waits for every entry consumed by the kernel, of the `open` ones in the queue.
fn abandon(ring: &mut IoUring, requests: &mut [Request<'_>], open: usize) {
    // Entries that the kernel has not consumed never run: they are dropped with the ring.
    let not_taken = ring.submission().len();
    let mut taken = open.saturating_sub(not_taken);
    while taken > 0 {
        for completion in ring.completion() {
            taken -= 1;
            // Unfinished requests are executed by plain calls afterwards.
            requests[completion.user_data() as usize].take(completion.result());
        }
        if taken == 0 {
            return;
        }
        // SAFETY: the call passes no argument for the kernel to read or write.
        let waited = unsafe { ring.submitter().enter::<()>(0, 1, 1, None) };
        if let Err(error) = waited
            && !is_passing(&error)
        {
            // Returning would free buffers that the kernel may still write to.
            std::process::abort();
        }
    }
}

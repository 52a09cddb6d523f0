//! An entry of a queue: the two buffers into which the kernel puts a request, and from which it takes the answer.
//!
//! A slot is moved to the thread that works on it: the queue's, then possibly a thread of the pool. While the kernel
//! has it, its queue keeps it and does not access it.
//!
//! Invariants
//! - SLOT-1: the buffers keep their addresses for the life of the slot, even if it is moved.
//! - SLOT-2: a slot that the kernel may still write to is never dropped.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::uring::{EntInOut, IoVec, ReqHeader};
use crate::abi::{InHeader, OutHeader};
use crate::answer::Outcome;
use crate::device::Page;
use crate::request::Errno;

/// The buffers of one request at a time.
pub(super) struct Slot {
    header: NonNull<ReqHeader>,
    payload: NonNull<[Page]>,
    buffers: Box<[IoVec; 2]>,
}

// SAFETY: the slot owns the memory, and none of it is bound to a thread.
unsafe impl Send for Slot {}

/// A request in a slot.
pub(super) struct Arrived<'a> {
    pub(super) header: InHeader,
    /// The fixed part, followed by leftovers of earlier requests.
    pub(super) fixed: &'a [u8],
    pub(super) buffer: &'a mut [u8],
    pub(super) payload_len: usize,
}

impl Slot {
    /// Creates a slot for payloads of up to `request_bytes`.
    pub(super) fn new(request_bytes: usize) -> io::Result<Self> {
        let pages = request_bytes.div_ceil(size_of::<Page>());
        let payload = Page::new_vec_zeroed(pages)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?
            .into_boxed_slice();
        let payload = NonNull::from(Box::leak(payload));
        let header = NonNull::from(Box::leak(Box::new(ReqHeader::new_zeroed())));
        let part = |base: usize, len: usize| IoVec { base, len };
        let buffers = Box::new([
            part(header.addr().get(), size_of::<ReqHeader>()),
            part(payload.addr().get(), pages * size_of::<Page>()),
        ]);
        Ok(Self {
            header,
            payload,
            buffers,
        })
    }

    /// Returns the address of the list of buffers, for the kernel to read.
    #[inline]
    pub(super) fn buffers(&self) -> u64 {
        self.buffers.as_ptr().addr() as u64
    }

    #[inline]
    fn header(&mut self) -> &mut ReqHeader {
        // SAFETY: it was created from a box and lives as long as the slot. `&mut self` excludes other threads. The
        // kernel does not have the slot while a thread calls its methods.
        unsafe { self.header.as_mut() }
    }

    /// Returns the request that the kernel has put into the slot.
    #[inline]
    pub(super) fn arrived(&mut self) -> Arrived<'_> {
        // SAFETY: as in `header`; the two buffers do not overlap.
        let (head, pages) = unsafe { (self.header.as_ref(), self.payload.as_mut()) };
        let (header, _) = InHeader::read_from_prefix(&head.in_out)
            .expect("the header's field is larger than the header");
        Arrived {
            header,
            fixed: &head.op_in,
            buffer: pages.as_mut_bytes(),
            payload_len: head.ring_ent_in_out.payload_sz as usize,
        }
    }

    /// Writes the head of an answer; its payload is already there. Returns the kernel's id of the request.
    #[inline]
    pub(super) fn finish(&mut self, request: &InHeader, outcome: Outcome) -> u64 {
        let (error, len) = match outcome {
            Outcome::Answer(len) => (0, len),
            Outcome::Silence => (0, 0),
            Outcome::Failure(error) => (-error.code(), 0),
            Outcome::WouldBlock(_) => {
                tracing::error!(request.opcode, "not answered where waiting is allowed");
                (-Errno::IO.code(), 0)
            }
        };
        let head = OutHeader {
            // An answer is not longer than its buffer.
            len: (size_of::<OutHeader>() + len) as u32,
            error,
            unique: request.unique,
        };
        let header = self.header();
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(head.as_bytes());
        let commit_id = header.ring_ent_in_out.commit_id;
        header.ring_ent_in_out = EntInOut {
            payload_sz: len as u32,
            commit_id,
            ..EntInOut::new_zeroed()
        };
        commit_id
    }
}

#[cfg(test)]
thread_local! {
    static DROPPED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how many slots the calling thread has dropped.
#[cfg(test)]
pub(super) fn dropped() -> usize {
    DROPPED.get()
}

impl Drop for Slot {
    fn drop(&mut self) {
        #[cfg(test)]
        DROPPED.set(DROPPED.get() + 1);
        // SAFETY: both were created from boxes and are not used after this; the kernel does not have them (SLOT-2).
        unsafe {
            drop(Box::from_raw(self.header.as_ptr()));
            drop(Box::from_raw(self.payload.as_ptr()));
        }
    }
}

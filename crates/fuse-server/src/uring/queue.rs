//! One queue of FUSE over io_uring, and the thread that serves it.
//!
//! The kernel puts a request into the queue of its client's CPU. The thread is pinned to that CPU: client and server
//! take turns there, and neither has to be woken on another one.
//!
//! Invariants
//! - QUEUE-1: the thread waits only for its ring. A request that would block moves, with its slot, to the pool, and its
//!   answer returns through `Returns`.
//! - QUEUE-2: the thread ends when the kernel has released all slots, or the connection ends. Slots that the kernel did
//!   not release are leaked.
//! - QUEUE-3: a queue that the kernel still puts requests into is served, or its end is an error.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::ring::{Completion, Ring};
use super::slot::Slot;
use crate::abi::opcode;
use crate::answer::{Outcome, Pending, Server};
use crate::capacity::Capacity;
use crate::device::Device;
use crate::ending::Ending;
use crate::pool::Pool;
use crate::request::FileSystem;

/// The maximum time from the release of slots by the kernel to the end of the connection.
const ENDING_AT_MOST: Duration = Duration::from_secs(1);

/// Answers of the pool, on their way back to the queue.
struct Returns {
    answered: Mutex<Vec<Answered>>,
    event: OwnedFd,
}

struct Answered {
    index: usize,
    slot: Slot,
    commit_id: u64,
}

impl Returns {
    fn put(&self, answered: Answered) {
        let mut all = self.answered.lock();
        all.push(answered);
        if all.len() == 1
            && let Err(error) = rustix::io::write(&self.event, &1u64.to_ne_bytes())
        {
            tracing::error!(%error, "a queue cannot be woken");
        }
    }

    fn take(&self) -> Vec<Answered> {
        let mut count = [0; 8];
        // Nothing to read: the wake of another thread was enough.
        let _ = rustix::io::read(&self.event, &mut count);
        mem::take(&mut self.answered.lock())
    }
}

/// The arguments of serving a queue.
pub(super) struct Service<'a, F> {
    pub(super) server: &'a Arc<Server<F>>,
    pub(super) device: &'a Device,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) ending: &'a Ending,
}

pub(super) struct Queue {
    ring: Ring,
    /// `None`: the pool has it.
    slots: Vec<Option<Slot>>,
    /// Slots that the kernel has or will get back.
    live: usize,
    returns: Arc<Returns>,
    completions: Vec<Completion>,
}

impl Queue {
    /// Creates a queue, on the thread that serves it. The kernel does not know the queue yet.
    pub(super) fn new(number: u16, capacity: &Capacity) -> io::Result<Self> {
        let depth = capacity.places();
        let slots = (0..depth)
            .map(|_| Slot::new(capacity.request_bytes).map(Some))
            .collect::<io::Result<Vec<_>>>()?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            ring: Ring::new(number, depth)?,
            live: slots.len(),
            slots,
            returns: Arc::new(Returns {
                answered: Mutex::new(Vec::new()),
                event,
            }),
            completions: Vec::new(),
        })
    }

    /// Ends a queue that was never registered.
    pub(super) fn abandon(mut self) {
        self.live = 0;
    }

    /// Registers the slots with the kernel, which reports failures at once.
    pub(super) fn register(&mut self, device: &Device, ending: &Ending) -> io::Result<()> {
        self.ring.watch(self.returns.event.as_fd());
        self.ring.watch_end(ending.as_fd());
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot {
                self.ring.register(device.as_fd(), index, slot);
            }
        }
        self.ring.submit(&mut self.completions)?;
        let refused = self.completions.iter().find_map(|completion| {
            let Completion::Slot(_, Err(error)) = completion else {
                return None;
            };
            Some(io::Error::from(*error))
        });
        match refused {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Serves until the connection ends.
    pub(super) fn serve<F: FileSystem>(&mut self, service: &Service<'_, F>) -> io::Result<()> {
        service.server.file_system.set_nonblocking();
        let mut completions = mem::take(&mut self.completions);
        loop {
            for completion in completions.drain(..) {
                match completion {
                    Completion::Slot(index, Ok(())) => self.request(index, service),
                    Completion::Slot(_, Err(error)) => {
                        self.live -= 1;
                        // QUEUE-3
                        if !is_end(error) && !service.device.ends_within(ENDING_AT_MOST) {
                            return Err(error.into());
                        }
                    }
                    Completion::Wake { watched } => {
                        for answered in self.returns.take() {
                            self.slots[answered.index] = Some(answered.slot);
                            let (index, commit_id) = (answered.index, answered.commit_id);
                            self.ring.commit(service.device.as_fd(), index, commit_id);
                        }
                        // The kernel may end a multishot poll at any time.
                        if !watched {
                            self.ring.watch(self.returns.event.as_fd());
                        }
                    }
                    Completion::End => {}
                }
            }
            // Another queue has failed. Slots are leaked on drop, since the kernel still has them (QUEUE-2).
            if service.ending.has_failed() {
                return Ok(());
            }
            // QUEUE-2 and QUEUE-3
            if self.live == 0 {
                return if service.device.ends_within(ENDING_AT_MOST) {
                    Ok(())
                } else {
                    Err(io::Error::other("the kernel no longer uses the queue"))
                };
            }
            self.ring.wait(&mut completions)?;
        }
    }

    /// Answers the request in a slot, or moves it to the pool.
    fn request<F: FileSystem>(&mut self, index: usize, service: &Service<'_, F>) {
        let server = service.server;
        let mut slot = self.slots[index].take().expect("the kernel had this slot");
        let arrived = slot.arrived();
        let header = arrived.header;
        // QUEUE-1: this thread does not block; the pool runs blocking requests.
        // An attempt on this thread would be useless work for these operations.
        let outcome = if always_waits(header.opcode) {
            Outcome::WouldBlock(Pending::default())
        } else {
            server.answer(&header, arrived.fixed, arrived.buffer, arrived.payload_len)
        };
        let pending = match outcome {
            Outcome::WouldBlock(pending) => pending,
            outcome => {
                let commit_id = slot.finish(&header, outcome);
                self.slots[index] = Some(slot);
                return self.ring.commit(service.device.as_fd(), index, commit_id);
            }
        };
        let server = Arc::clone(server);
        let returns = Arc::clone(&self.returns);
        service.pool.run(move || {
            let arrived = slot.arrived();
            let outcome = server.resume(
                pending,
                &header,
                arrived.fixed,
                arrived.buffer,
                arrived.payload_len,
            );
            let commit_id = slot.finish(&header, outcome);
            returns.put(Answered {
                index,
                slot,
                commit_id,
            });
        });
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // QUEUE-2
        if self.live > 0 {
            // The kernel may still write to them.
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

/// Returns whether a request always waits for a commit.
fn always_waits(operation: u32) -> bool {
    matches!(
        operation,
        opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS | opcode::DESTROY
    )
}

/// Returns whether the kernel releases slots with this error at the end of the connection.
fn is_end(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV
    )
}

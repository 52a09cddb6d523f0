//! One queue of FUSE over io_uring, and the thread that serves it.
//!
//! The kernel puts a request into the queue of the CPU that its client runs on. The thread is pinned to that
//! CPU: client and server take turns there, and neither has to be woken on another one.
//!
//! Invariants
//! - QUEUE-1: the thread never waits but for its ring. What would have to wait moves, with its slot, to the
//!   pool, and comes back through `Returns` to be answered.
//! - QUEUE-2: the thread ends when the kernel has let all slots go. Slots that it did not let go are leaked.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::pool::Pool;
use super::ring::{Completion, Ring};
use super::slot::Slot;
use crate::request::FileSystem;
use crate::transport::abi::opcode;
use crate::transport::answer::{Outcome, Pending, Server};
use crate::transport::device::Device;

/// Answers that the pool has made, on their way back.
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
        // Nothing to read: somebody else's wake was enough.
        let _ = rustix::io::read(&self.event, &mut count);
        mem::take(&mut self.answered.lock())
    }
}

/// A queue that the kernel does not know of yet.
pub(super) struct Queue {
    ring: Ring,
    /// None: with the pool.
    slots: Vec<Option<Slot>>,
    /// Slots that the kernel has or will be given back.
    live: usize,
    returns: Arc<Returns>,
}

impl Queue {
    /// To be made on the thread that serves it.
    pub(super) fn new(number: u16, depth: usize, request_bytes: usize) -> io::Result<Self> {
        let slots = (0..depth)
            .map(|_| Slot::new(request_bytes).map(Some))
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
        })
    }

    /// Registers with the kernel and serves until the connection ends.
    pub(super) fn serve<F: FileSystem>(
        mut self,
        server: &Arc<Server<F>>,
        device: &Device,
        pool: &Arc<Pool>,
    ) -> io::Result<()> {
        server.file_system.forbid_waiting();
        self.ring.watch(self.returns.event.as_fd());
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot {
                self.ring.register(device.as_fd(), index, slot);
            }
        }
        let outcome = self.run(server, device, pool);
        if outcome.is_err() {
            // The kernel may have them.
            mem::forget(mem::take(&mut self.slots));
        }
        outcome
    }

    fn run<F: FileSystem>(
        &mut self,
        server: &Arc<Server<F>>,
        device: &Device,
        pool: &Arc<Pool>,
    ) -> io::Result<()> {
        let mut completions = Vec::new();
        let mut refused = None;
        while self.live > 0 {
            self.ring.wait(&mut completions)?;
            for completion in completions.drain(..) {
                match completion {
                    Completion::Slot(index, Ok(())) => self.request(index, server, device, pool),
                    Completion::Slot(_, Err(error)) => {
                        self.live -= 1;
                        if !is_end(error) {
                            refused.get_or_insert(error);
                        }
                    }
                    Completion::Wake { watched } => {
                        for answered in self.returns.take() {
                            self.slots[answered.index] = Some(answered.slot);
                            let (index, commit_id) = (answered.index, answered.commit_id);
                            self.ring.commit(device.as_fd(), index, commit_id);
                        }
                        if !watched {
                            self.ring.watch(self.returns.event.as_fd());
                        }
                    }
                }
            }
        }
        match refused {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    /// Answers the request in a slot, or hands it to the pool.
    fn request<F: FileSystem>(
        &mut self,
        index: usize,
        server: &Arc<Server<F>>,
        device: &Device,
        pool: &Arc<Pool>,
    ) {
        let mut slot = self.slots[index].take().expect("the kernel had this slot");
        let arrived = slot.arrived();
        let header = arrived.header;
        let outcome = if always_waits(header.opcode) {
            Outcome::WouldWait(Pending::Unparsed)
        } else {
            server.answer(&header, arrived.fixed, arrived.buffer, arrived.payload_len)
        };
        let pending = match outcome {
            Outcome::WouldWait(pending) => pending,
            outcome => {
                let commit_id = slot.finish(&header, outcome);
                self.slots[index] = Some(slot);
                return self.ring.commit(device.as_fd(), index, commit_id);
            }
        };
        let server = Arc::clone(server);
        let returns = Arc::clone(&self.returns);
        pool.run(move || {
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

/// Requests that wait for a commit, always.
fn always_waits(operation: u32) -> bool {
    matches!(
        operation,
        opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS | opcode::DESTROY
    )
}

/// What the kernel lets slots go with at the end of the connection.
fn is_end(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV
    )
}

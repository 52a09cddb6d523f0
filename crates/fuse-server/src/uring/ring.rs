//! A ring whose submissions are FUSE commands.
//!
//! Not here: the handling of requests (`queue`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::slot::Slot;
use crate::abi::uring::{CMD_COMMIT_AND_FETCH, CMD_REGISTER, CmdReq};

/// The offset of a submission's length, which no command of the io-uring crate sets.
const LEN_AT: usize = 24;
/// The user data of polls. All other submissions have the number of their slot.
const WAKE: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// The meaning of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// The slot of this number has a request, or the kernel released it.
    Slot(usize, Result<(), Errno>),
    /// The event descriptor was written to. `watched` is whether the poll continues.
    Wake { watched: bool },
    /// The connection ends.
    End,
}

pub(super) struct Ring {
    ring: IoUring<Entry128, cqueue::Entry>,
    queue: u16,
}

impl Ring {
    /// Creates the ring of a queue, on the thread that serves it.
    pub(super) fn new(queue: u16, slots: usize) -> io::Result<Self> {
        // Each slot has at most one submission in flight, and so has each polled descriptor.
        let entries = (slots + 2).next_power_of_two() as u32;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        Ok(Self { ring, queue })
    }

    /// Sends a command before the kernel can execute it. Fails if the kernel or a security policy refuses it for good.
    pub(super) fn try_command(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        let entry = self.command(device, CMD_REGISTER, 0, None);
        self.push(entry.user_data(0));
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.wait(&mut completions)?;
        }
        match completions[..] {
            [
                Completion::Slot(_, Err(error @ (Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP))),
            ] => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Passes a slot to the kernel for the first time. It must be kept until the kernel releases it.
    pub(super) fn register(&mut self, device: BorrowedFd<'_>, index: usize, slot: &Slot) {
        let mut entry = self.command(device, CMD_REGISTER, 0, Some(slot.buffers()));
        // SAFETY: an entry is 128 bytes in the kernel's layout, which has a u32 here.
        unsafe {
            (&raw mut entry)
                .cast::<u8>()
                .add(LEN_AT)
                .cast::<u32>()
                .write(2);
        }
        self.push(entry.user_data(index as u64));
    }

    /// Returns a slot with an answer to the kernel, for the next request.
    #[inline]
    pub(super) fn commit(&mut self, device: BorrowedFd<'_>, index: usize, commit_id: u64) {
        let entry = self.command(device, CMD_COMMIT_AND_FETCH, commit_id, None);
        self.push(entry.user_data(index as u64));
    }

    /// Polls an event descriptor, so that writes to it wake the thread.
    pub(super) fn watch(&mut self, event: BorrowedFd<'_>) {
        let readable = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), readable)
            .multi(true)
            .build();
        self.push(Entry128::from(poll).user_data(WAKE));
    }

    /// Polls a descriptor once, so that it wakes the thread when it becomes readable.
    pub(super) fn watch_end(&mut self, end: BorrowedFd<'_>) {
        let readable = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(types::Fd(end.as_raw_fd()), readable).build();
        self.push(Entry128::from(poll).user_data(END));
    }

    /// Submits, and collects the available completions.
    #[inline]
    pub(super) fn submit(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.enter(0, completions)
    }

    /// Submits, waits for a completion, and collects the available ones.
    #[inline]
    pub(super) fn wait(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.enter(1, completions)
    }

    #[inline]
    fn enter(&mut self, wanted: usize, completions: &mut Vec<Completion>) -> io::Result<()> {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => {}
            // A signal, or completions must be taken first.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
                ) => {}
            Err(error) => return Err(error),
        }
        completions.extend(self.ring.completion().map(|completion| {
            let outcome = match completion.result() {
                error @ ..0 => Err(Errno::from_raw_os_error(-error)),
                _ => Ok(()),
            };
            match completion.user_data() {
                // `IORING_CQE_F_MORE` means that the multishot poll continues.
                WAKE => Completion::Wake {
                    watched: cqueue::more(completion.flags()),
                },
                END => Completion::End,
                slot => Completion::Slot(slot as usize, outcome),
            }
        }));
        Ok(())
    }

    #[inline]
    fn command(
        &self,
        device: BorrowedFd<'_>,
        command: u32,
        commit_id: u64,
        addr: Option<u64>,
    ) -> Entry128 {
        let request = CmdReq {
            flags: 0,
            commit_id,
            qid: self.queue,
            padding: [0; 6],
        };
        let mut area = [0; 80];
        area[..size_of::<CmdReq>()].copy_from_slice(request.as_bytes());
        opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), command)
            .cmd(area)
            .addr(addr)
            .build()
    }

    #[inline]
    fn push(&mut self, entry: Entry128) {
        // SAFETY: a command names buffers of a slot, which stay in place until the kernel lets it go (SLOT-1,
        // SLOT-2), or none. Descriptors are taken at submission, when their owners still live.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has room for every slot");
    }
}

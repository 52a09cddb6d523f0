//! Answering a request: hands its operation to the file system, and encodes the answer.
//!
//! Request and answer share one payload buffer, in every transport. An operation that only reads its payload borrows
//! it. Its answer is written over it after the file system has returned. If the file system fills the buffer itself,
//! the payload is copied first. Only names of xattrs and arguments of ioctls are not empty then.
//!
//! Invariants
//! - ANSWER-1: an operation that would block leaves its request unchanged, so that it can be `resume`d.
//! - ANSWER-2: the length of an answer never exceeds the requested size, regardless of the file system's result.
//!
//! Not here: headers, and how answers get to the kernel.

use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::abi::{InHeader, opcode, output};
use crate::encode::Buffer;
use crate::init::Negotiated;
use crate::panic_guard::guard;
use crate::request::{Answer, Context, Errno, FileSystem, NodeId, Operation, Result};
use crate::retrieval::Retrievals;
use crate::{encode, parse};

/// The longest target of a symbolic link that the kernel accepts.
const LINK_MAX_BYTES: usize = 4095;

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The length of the answer in the buffer.
    Answer(usize),
    Failure(Errno),
    /// The kernel expects no answer.
    Silence,
    /// To be `resume`d where blocking is allowed.
    WouldBlock(Pending),
}

/// A request that would have blocked.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The payload, if the buffer may have been overwritten.
    payload: Option<Box<[u8]>>,
}

/// A file system and the negotiated parameters of its connection.
#[derive(Debug)]
pub(crate) struct Server<F> {
    pub(crate) file_system: F,
    pub(crate) negotiated: Negotiated,
    pub(crate) retrievals: Arc<Retrievals>,
}

impl<F: FileSystem> Server<F> {
    /// Answers a request into `buffer`, whose first `payload_len` bytes are its payload. `fixed` has at least the bytes
    /// between header and payload.
    pub(crate) fn answer(
        &self,
        header: &InHeader,
        fixed: &[u8],
        buffer: &mut [u8],
        payload_len: usize,
    ) -> Outcome {
        self.resume(Pending::default(), header, fixed, buffer, payload_len)
    }

    /// Answers a request that would have blocked, on a thread that may block.
    pub(crate) fn resume(
        &self,
        pending: Pending,
        header: &InHeader,
        fixed: &[u8],
        buffer: &mut [u8],
        payload_len: usize,
    ) -> Outcome {
        let Some(fixed_len) = self.fixed_len(header.opcode) else {
            return Outcome::Failure(Errno::NOSYS);
        };
        let (Some(fixed), Some(payload)) = (fixed.get(..fixed_len), buffer.get(..payload_len))
        else {
            return Outcome::Failure(Errno::INVAL);
        };
        match header.opcode {
            // Blocked verbs are not interrupted (docs/design/transports.md): ENOSYS stops the kernel from sending more.
            opcode::INTERRUPT => return Outcome::Failure(Errno::NOSYS),
            opcode::NOTIFY_REPLY => {
                self.retrievals.reply(NodeId(header.nodeid), payload);
                return Outcome::Silence;
            }
            opcode::BATCH_FORGET => return self.forget_batch(header, fixed, payload),
            _ => {}
        }
        let before = match header.opcode {
            opcode::IOCTL => size_of::<output::IoctlOut>(),
            _ => 0,
        };
        // ANSWER-1, REQ-1
        let saved = opcode::fills_buffer(header.opcode)
            .then(|| pending.payload.unwrap_or_else(|| payload.into()));
        let (payload, room) = match &saved {
            Some(saved) => (&saved[..], &mut buffer[before..]),
            None => (&buffer[..payload_len], &mut [][..]),
        };
        let Ok(mut operation) = parse::operation(header, fixed, payload) else {
            return Outcome::Failure(Errno::INVAL);
        };
        if let Operation::Write { how, .. } = &mut operation {
            *how = self.negotiated.left_to_do(*how);
        }
        // ANSWER-2
        let mut most = limit(&operation);
        let mut room = Buffer::new(room, most);
        let answer = self.perform(header, NodeId(header.nodeid), &operation, &mut room);
        let listed = room.listed();
        if saved.is_some() {
            most = room.len();
        }
        let len = match answer {
            // REQ-4
            _ if listed > 0 => Ok(listed),
            _ if header.opcode == opcode::FORGET => return Outcome::Silence,
            Err(Errno::WOULD_BLOCK) => return Outcome::WouldBlock(Pending { payload: saved }),
            Err(error) => Err(error),
            Ok(answer) => self.encode(&answer, header.opcode, most, buffer),
        };
        match len {
            Ok(len) => Outcome::Answer(len),
            Err(error) => Outcome::Failure(error),
        }
    }

    /// Returns the length of an operation's fixed part, or `None` if it is unknown.
    pub(crate) fn fixed_len(&self, operation: u32) -> Option<usize> {
        opcode::fixed_len(operation, self.negotiated.setxattr_ext)
    }

    #[inline]
    fn perform(
        &self,
        header: &InHeader,
        node: NodeId,
        operation: &Operation<'_>,
        out: &mut Buffer<'_>,
    ) -> Result<Answer> {
        let context = Context {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        };
        let perform = || self.file_system.perform(&context, node, operation, out);
        guard(operation.verb(), perform)
    }

    fn forget_batch(&self, header: &InHeader, fixed: &[u8], payload: &[u8]) -> Outcome {
        let Ok(nodes) = parse::forgotten(fixed, payload) else {
            return Outcome::Failure(Errno::INVAL);
        };
        for (node, lookups) in nodes {
            let forget = Operation::Forget { lookups };
            // Nobody waits for the result.
            let _ = self.perform(header, node, &forget, &mut Buffer::new(&mut [], 0));
        }
        Outcome::Silence
    }

    /// Writes an answer to the start of `buffer`, and returns its length. `most` limits the lengths that the file system
    /// returns.
    #[inline]
    fn encode(
        &self,
        answer: &Answer,
        operation: u32,
        most: usize,
        buffer: &mut [u8],
    ) -> Result<usize> {
        match *answer {
            Answer::Done => Ok(0),
            Answer::Entry(ref entry) => put(&encode::entry_out(entry), buffer),
            Answer::Absent { ttl } => put(&encode::absent(ttl), buffer),
            Answer::Attributes(ref found) if operation == opcode::STATX => {
                put(&encode::statx_out(found), buffer)
            }
            Answer::Attributes(ref found) => put(&encode::attr_out(found), buffer),
            Answer::Opened(opened) => {
                let open = self
                    .negotiated
                    .open_out(opened, operation == opcode::OPENDIR)?;
                put(&open, buffer)
            }
            Answer::Created(ref entry, opened) => put(
                &output::CreateOut {
                    entry: encode::entry_out(entry),
                    open: encode::open_out(opened, output::FOPEN_KEEP_CACHE),
                },
                buffer,
            ),
            Answer::Len(len) if matches!(operation, opcode::GETXATTR | opcode::LISTXATTR) => {
                xattr_len(len, most, buffer)
            }
            Answer::Len(len) => Ok(len.min(most)),
            Answer::Written(len) => put(&count(len.min(most)), buffer),
            Answer::Copied(len) if operation == opcode::COPY_FILE_RANGE_64 => {
                let bytes_copied = len.min(most as u64);
                put(&output::CopyFileRangeOut { bytes_copied }, buffer)
            }
            Answer::Copied(len) => put(&count((len as usize).min(most)), buffer),
            Answer::Offset(offset) => {
                i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
                put(&output::LseekOut { offset }, buffer)
            }
            Answer::StatFs(ref stat) => put(&encode::kstatfs(stat), buffer),
            Answer::Ioctl(answer) => {
                let head = output::IoctlOut {
                    result: answer.error.map_or(0, |error| -error.code()),
                    flags: 0,
                    in_iovs: 0,
                    out_iovs: 0,
                };
                Ok(put(&head, buffer)? + answer.len_bytes.min(most))
            }
        }
    }
}

/// Returns the maximum of the length that an operation returns.
#[inline]
fn limit(operation: &Operation<'_>) -> usize {
    match *operation {
        Operation::Read { size, .. }
        | Operation::Readdir { size, .. }
        | Operation::Readdirplus { size, .. }
        | Operation::Getxattr { size, .. }
        | Operation::Listxattr { size }
        | Operation::Ioctl { size, .. } => size as usize,
        Operation::Readlink => LINK_MAX_BYTES,
        Operation::Write { bytes, .. } => bytes.len(),
        Operation::CopyFileRange { len, .. } => len as usize,
        _ => 0,
    }
}

#[inline]
fn put(answer: &(impl IntoBytes + Immutable), buffer: &mut [u8]) -> Result<usize> {
    answer.write_to_prefix(buffer).map_err(|_| Errno::IO)?;
    Ok(size_of_val(answer))
}

/// Returns the answer with the number of bytes written or copied. Requests with this answer are for fewer than 2^32.
#[inline]
fn count(len: usize) -> output::WriteOut {
    output::WriteOut {
        size: len as u32,
        padding: 0,
    }
}

/// Returns the length of the answer to an xattr request. If the request has no room for it, the answer is only the
/// value's length.
#[inline]
fn xattr_len(len: usize, most: usize, buffer: &mut [u8]) -> Result<usize> {
    if most == 0 {
        let size = u32::try_from(len).map_err(|_| Errno::RANGE)?;
        return put(&output::GetxattrOut { size, padding: 0 }, buffer);
    }
    if len > most {
        return Err(Errno::RANGE);
    }
    Ok(len)
}

#[cfg(test)]
mod tests;

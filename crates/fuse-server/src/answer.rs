//! Answering a request: calls the verb and encodes its result.
//!
//! Request and answer share one payload buffer, in every transport. A verb that reads its payload has a small fixed
//! answer, which is written after it has returned. A verb that fills the buffer has its arguments in memory of their
//! own.
//!
//! Invariants
//! - ANSWER-1: a verb that would block leaves its request unchanged, so that it can be `resume`d.
//! - ANSWER-2: the length of an answer never exceeds the requested size, regardless of the verb's result.
//!
//! Not here: headers, and how answers get to the kernel.

use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::{InHeader, output};
use crate::encode::{Fixed, Listing};
use crate::init::Negotiated;
use crate::parse::{Fill, Malformed, Operation, Plain, Whence};
use crate::request::{
    Context, DirPlusSink, DirSink, Errno, FileSystem, Lookup, NodeId, Result, SeekFor,
};
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
#[derive(Debug)]
pub(crate) enum Pending {
    /// The request is unchanged in the buffer.
    Unparsed,
    /// The buffer may be overwritten.
    Fill(Fill),
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
        let Some(fixed_len) = self.fixed_len(header.opcode) else {
            return Outcome::Failure(Errno::NOSYS);
        };
        let (Some(fixed), Some(payload)) = (fixed.get(..fixed_len), buffer.get(..payload_len))
        else {
            return Outcome::Failure(Errno::INVAL);
        };
        let context = context(header);
        let node = NodeId(header.nodeid);
        match parse::operation(header, fixed, payload) {
            Err(Malformed) => Outcome::Failure(Errno::INVAL),
            Ok(Operation::Fill(fill)) => self.fill(&context, node, fill, buffer),
            Ok(Operation::Plain(Plain::NotifyReply { payload })) => {
                self.retrievals.reply(node, payload);
                Outcome::Silence
            }
            Ok(Operation::Plain(plain)) => {
                let silent = matches!(plain, Plain::Forget { .. } | Plain::BatchForget { .. });
                match self.plain(&context, node, plain) {
                    _ if silent => Outcome::Silence,
                    Ok(answer) => put(&answer, buffer),
                    Err(Errno::WOULD_BLOCK) => Outcome::WouldBlock(Pending::Unparsed),
                    Err(error) => Outcome::Failure(error),
                }
            }
        }
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
        match pending {
            Pending::Unparsed => self.answer(header, fixed, buffer, payload_len),
            Pending::Fill(fill) => self.fill(&context(header), NodeId(header.nodeid), fill, buffer),
        }
    }

    /// Returns the length of an operation's fixed part, or `None` if it is unknown.
    pub(crate) fn fixed_len(&self, operation: u32) -> Option<usize> {
        parse::fixed_len(operation, self.negotiated.setxattr_ext)
    }

    fn fill(&self, context: &Context, node: NodeId, fill: Fill, buffer: &mut [u8]) -> Outcome {
        let outcome = match &fill {
            Fill::Read {
                handle,
                offset,
                size,
                how,
            } => {
                // REQ-1
                let out = room(buffer, *size);
                let most = out.len();
                let read = self
                    .file_system
                    .read(context, node, *handle, *offset, out, how);
                // ANSWER-2
                read.map(|len| len.min(most))
            }
            Fill::Readdir {
                handle,
                offset,
                size,
            } => {
                let mut listing = Listing::new(room(buffer, *size));
                let sink: &mut dyn DirSink = &mut listing;
                let listed = self
                    .file_system
                    .readdir(context, node, *handle, *offset, sink);
                listed_len(&listing, listed)
            }
            Fill::Readdirplus {
                handle,
                offset,
                size,
            } => {
                let mut listing = Listing::new(room(buffer, *size));
                let sink: &mut dyn DirPlusSink = &mut listing;
                let listed = self
                    .file_system
                    .readdirplus(context, node, *handle, *offset, sink);
                listed_len(&listing, listed)
            }
            Fill::Readlink => {
                let most = buffer.len().min(LINK_MAX_BYTES);
                let read = self
                    .file_system
                    .readlink(context, node, &mut buffer[..most]);
                read.map(|len| len.min(most))
            }
            Fill::Getxattr { name, size } => {
                let out = room(buffer, *size);
                let found = self.file_system.getxattr(context, node, name, out);
                found.and_then(|len| xattr_len(len, *size, buffer))
            }
            Fill::Listxattr { size } => {
                let out = room(buffer, *size);
                let found = self.file_system.listxattr(context, node, out);
                found.and_then(|len| xattr_len(len, *size, buffer))
            }
            Fill::Ioctl {
                command,
                input,
                out_size,
            } => {
                let (before, out) = buffer.split_at_mut(size_of::<output::IoctlOut>());
                let out = room(out, *out_size);
                let most = out.len();
                let done = self.file_system.ioctl(context, node, *command, input, out);
                done.map(|answer| {
                    let head = output::IoctlOut {
                        result: answer.error.map_or(0, |error| -error.code()),
                        flags: 0,
                        in_iovs: 0,
                        out_iovs: 0,
                    };
                    before.copy_from_slice(head.as_bytes());
                    before.len() + answer.len_bytes.min(most)
                })
            }
        };
        match outcome {
            Ok(len) => Outcome::Answer(len),
            // ANSWER-1
            Err(Errno::WOULD_BLOCK) => Outcome::WouldBlock(Pending::Fill(fill)),
            Err(error) => Outcome::Failure(error),
        }
    }

    fn plain(&self, context: &Context, node: NodeId, plain: Plain<'_>) -> Result<Fixed> {
        let fs = &self.file_system;
        let done = |()| Fixed::empty();
        match plain {
            Plain::Lookup { name } => fs.lookup(context, node, name).map(|found| match found {
                Lookup::Found(entry) => Fixed::of(&encode::entry_out(&entry)),
                Lookup::Absent { ttl } => Fixed::of(&encode::absent(ttl)),
            }),
            Plain::Forget { lookups } => {
                fs.forget(node, lookups);
                Ok(Fixed::empty())
            }
            Plain::BatchForget { nodes } => {
                for (node, lookups) in nodes.each() {
                    fs.forget(node, lookups);
                }
                Ok(Fixed::empty())
            }
            Plain::Getattr => {
                let found = fs.getattr(context, node)?;
                Ok(Fixed::of(&encode::attr_out(&found)))
            }
            Plain::Statx => {
                let found = fs.getattr(context, node)?;
                Ok(Fixed::of(&encode::statx_out(&found)))
            }
            Plain::Setattr { handle, change } => {
                let now = fs.setattr(context, node, handle, &change)?;
                Ok(Fixed::of(&encode::attr_out(&now)))
            }
            Plain::Symlink { name, target } => entry(fs.symlink(context, node, name, target)),
            Plain::Mknod { name, new } => entry(fs.mknod(context, node, name, &new)),
            Plain::Mkdir { name, new } => entry(fs.mkdir(context, node, name, &new)),
            Plain::Link { node: target, name } => entry(fs.link(context, target, node, name)),
            Plain::Unlink { name } => fs.unlink(context, node, name).map(done),
            Plain::Rmdir { name } => fs.rmdir(context, node, name).map(done),
            Plain::Rename { name, to, flags } => {
                fs.rename(context, (node, name), to, flags).map(done)
            }
            Plain::Open { flags } => {
                let opened = fs.open(context, node, flags)?;
                self.negotiated.opened(opened)
            }
            Plain::Opendir => {
                let opened = fs.opendir(context, node)?;
                self.negotiated.opened_dir(opened)
            }
            Plain::Create { name, new, flags } => {
                let (entry, opened) = fs.create(context, node, name, &new, flags)?;
                Ok(created(&entry, opened))
            }
            Plain::Tmpfile { new, flags } => {
                let (entry, opened) = fs.tmpfile(context, node, &new, flags)?;
                Ok(created(&entry, opened))
            }
            Plain::Write {
                handle,
                offset,
                bytes,
                how,
            } => {
                let how = self.negotiated.left_to_do(how);
                let taken = fs.write(context, node, handle, offset, bytes, &how)?;
                // A request is shorter than 2^32 bytes.
                let size = taken.min(bytes.len()) as u32;
                Ok(Fixed::of(&output::WriteOut { size, padding: 0 }))
            }
            Plain::Release { handle } => fs.release(context, node, handle).map(done),
            Plain::Releasedir { handle } => fs.releasedir(context, node, handle).map(done),
            Plain::Flush { handle } => fs.flush(context, node, handle).map(done),
            Plain::Fsync { handle, data_only } => {
                fs.fsync(context, node, handle, data_only).map(done)
            }
            Plain::Fsyncdir { handle, data_only } => {
                fs.fsyncdir(context, node, handle, data_only).map(done)
            }
            Plain::Syncfs => fs.syncfs(context).map(done),
            Plain::Statfs => {
                let stat = fs.statfs(context, node)?;
                Ok(Fixed::of(&encode::kstatfs(&stat)))
            }
            Plain::Setxattr { name, value, how } => {
                fs.setxattr(context, node, name, value, how).map(done)
            }
            Plain::Removexattr { name } => fs.removexattr(context, node, name).map(done),
            Plain::Access { mask } => fs.access(context, node, mask).map(done),
            Plain::Fallocate {
                handle,
                range,
                mode,
            } => fs.fallocate(context, node, handle, range, mode).map(done),
            Plain::Lseek {
                handle,
                offset,
                what,
            } => {
                let what = match what {
                    Whence::Data => SeekFor::Data,
                    Whence::Hole => SeekFor::Hole,
                    Whence::Other => return Err(Errno::INVAL),
                };
                let offset = fs.lseek(context, node, handle, offset, what)?;
                i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
                Ok(Fixed::of(&output::LseekOut { offset }))
            }
            Plain::CopyFileRange {
                from,
                to,
                len,
                wide,
            } => {
                // The narrow answer has 32 bits; the kernel sends another request for the rest.
                let most = if wide { len } else { len.min(1 << 30) };
                let copied = fs.copy_file_range(context, from, to, most)?.min(most);
                Ok(if wide {
                    Fixed::of(&output::CopyFileRangeOut {
                        bytes_copied: copied,
                    })
                } else {
                    Fixed::of(&output::WriteOut {
                        size: copied as u32,
                        padding: 0,
                    })
                })
            }
            Plain::Destroy => {
                fs.destroy()?;
                Ok(Fixed::empty())
            }
            // Blocked verbs are not interrupted (docs/design/transports.md): ENOSYS stops the kernel from sending more.
            Plain::Interrupt => Err(Errno::NOSYS),
            Plain::NotifyReply { .. } => Ok(Fixed::empty()),
        }
    }
}

#[inline]
fn context(header: &InHeader) -> Context {
    Context {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
    }
}

#[inline]
fn room(buffer: &mut [u8], size: u32) -> &mut [u8] {
    let most = buffer.len().min(size as usize);
    &mut buffer[..most]
}

#[inline]
fn put(answer: &Fixed, buffer: &mut [u8]) -> Outcome {
    let answer = answer.as_bytes();
    match buffer.get_mut(..answer.len()) {
        Some(out) => {
            out.copy_from_slice(answer);
            Outcome::Answer(answer.len())
        }
        None => Outcome::Failure(Errno::IO),
    }
}

#[inline]
fn entry(made: Result<crate::request::Entry>) -> Result<Fixed> {
    made.map(|entry| Fixed::of(&encode::entry_out(&entry)))
}

#[inline]
fn created(entry: &crate::request::Entry, opened: crate::request::Opened) -> Fixed {
    Fixed::of(&output::CreateOut {
        entry: encode::entry_out(entry),
        open: encode::open_out(opened, output::FOPEN_KEEP_CACHE),
    })
}

/// Returns the length of a listing. After at least one entry an error is ignored (REQ-4).
#[inline]
fn listed_len(listing: &Listing<'_>, listed: Result<()>) -> Result<usize> {
    match listed {
        Err(error) if listing.len() == 0 => Err(error),
        _ => Ok(listing.len()),
    }
}

/// Returns the length of the answer to an xattr request. If the request has no room for it, the answer is only the
/// value's length.
#[inline]
fn xattr_len(len: usize, size: u32, buffer: &mut [u8]) -> Result<usize> {
    if size == 0 {
        let size = u32::try_from(len).map_err(|_| Errno::RANGE)?;
        let answer = Fixed::of(&output::GetxattrOut { size, padding: 0 });
        return match put(&answer, buffer) {
            Outcome::Answer(len) => Ok(len),
            _ => Err(Errno::IO),
        };
    }
    if len > size as usize {
        return Err(Errno::RANGE);
    }
    Ok(len)
}

#[cfg(test)]
mod tests;

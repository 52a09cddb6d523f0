//! Parsing the bytes of a request.
//!
//! A request is a header, a fixed part whose length depends on the operation, and a payload: names, values, contents,
//! extensions. No length is trusted: a mismatch is `Malformed`.
//!
//! Requests have two shapes. A `Plain` request borrows its payload, and its answer is small and fixed. The answer to a
//! `Fill` request is written by the verb itself, into the buffer of the payload. So a `Fill` owns its arguments, and
//! stays valid when the buffer is overwritten.
//!
//! Not here: the dispatch to verbs (`answer`).

use rustix::fs::OFlags;
use zerocopy::FromBytes;

use crate::abi::input::{self, fattr};
use crate::abi::{InHeader, opcode};
use crate::request::{
    AccessMode, AttrChange, CopyEnd, DeviceNr, Handle, NewNode, NodeId, OpenFlags, ReadHow,
    RenameFlags, Time, TimeChange, WriteHow, XattrHow,
};

/// A request that does not have the form of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

type Parsed<T> = Result<T, Malformed>;

/// The size of a restricted ioctl's argument has 14 bits.
const IOCTL_MAX_BYTES: u32 = (1 << 14) - 1;
/// The maximum size of an xattr's value, and of a list of names, in the kernel.
const XATTR_MAX_BYTES: u32 = 1 << 16;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Plain(Plain<'a>),
    Fill(Fill),
}

/// A request with a small fixed answer, or without an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plain<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget {
        nodes: Forgotten<'a>,
    },
    Getattr,
    Statx,
    Setattr {
        handle: Option<Handle>,
        change: AttrChange,
    },
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        new: NewNode,
    },
    Mkdir {
        name: &'a [u8],
        new: NewNode,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        to: (NodeId, &'a [u8]),
        flags: RenameFlags,
    },
    /// Adds a name for `node`, in the directory of the request.
    Link {
        node: NodeId,
        name: &'a [u8],
    },
    Open {
        flags: OpenFlags,
    },
    Write {
        handle: Handle,
        offset: u64,
        bytes: &'a [u8],
        how: WriteHow,
    },
    Statfs,
    Release {
        handle: Handle,
    },
    Fsync {
        handle: Handle,
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        how: XattrHow,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        handle: Handle,
    },
    Opendir,
    Releasedir {
        handle: Handle,
    },
    Fsyncdir {
        handle: Handle,
        data_only: bool,
    },
    Access {
        mask: u32,
    },
    Create {
        name: &'a [u8],
        new: NewNode,
        flags: OpenFlags,
    },
    Tmpfile {
        new: NewNode,
        flags: OpenFlags,
    },
    Interrupt,
    NotifyReply {
        payload: &'a [u8],
    },
    Destroy,
    Fallocate {
        handle: Handle,
        range: (u64, u64),
        mode: u32,
    },
    Lseek {
        handle: Handle,
        offset: u64,
        what: Whence,
    },
    /// `wide` means that the answer has 64 bits.
    CopyFileRange {
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
        wide: bool,
    },
    Syncfs,
}

/// The `whence` values of lseek that the kernel does not handle itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    Data,
    Hole,
    Other,
}

/// A request whose answer the verb writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Read {
        handle: Handle,
        offset: u64,
        size: u32,
        how: ReadHow,
    },
    Readdir {
        handle: Handle,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        handle: Handle,
        offset: u64,
        size: u32,
    },
    Readlink,
    Getxattr {
        name: Box<[u8]>,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Ioctl {
        command: u32,
        input: Box<[u8]>,
        out_size: u32,
    },
}

/// Nodes, and the number of dropped lookups of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten<'a>(&'a [u8]);

impl Forgotten<'_> {
    pub(crate) fn each(self) -> impl Iterator<Item = (NodeId, u64)> {
        self.0
            .chunks_exact(size_of::<input::ForgetOne>())
            .filter_map(|one| input::ForgetOne::read_from_bytes(one).ok())
            .map(|one| (NodeId(one.nodeid), one.nlookup))
    }
}

/// Returns the length of an operation's fixed part, or `None` if it is unknown. `setxattr_ext` is whether that flag was
/// negotiated.
#[inline]
pub(crate) fn fixed_len(operation: u32, setxattr_ext: bool) -> Option<usize> {
    Some(match operation {
        opcode::LOOKUP
        | opcode::READLINK
        | opcode::SYMLINK
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::STATFS
        | opcode::REMOVEXATTR
        | opcode::DESTROY
        | opcode::NOTIFY_REPLY => 0,
        opcode::FORGET => size_of::<input::ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<input::BatchForgetIn>(),
        opcode::GETATTR => size_of::<input::GetattrIn>(),
        opcode::STATX => size_of::<input::StatxIn>(),
        opcode::SETATTR => size_of::<input::SetattrIn>(),
        opcode::MKNOD => size_of::<input::MknodIn>(),
        opcode::MKDIR => size_of::<input::MkdirIn>(),
        opcode::RENAME => size_of::<input::RenameIn>(),
        opcode::RENAME2 => size_of::<input::Rename2In>(),
        opcode::LINK => size_of::<input::LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<input::OpenIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<input::ReadIn>(),
        opcode::WRITE => size_of::<input::WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<input::ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<input::FsyncIn>(),
        opcode::SETXATTR if setxattr_ext => {
            size_of::<input::SetxattrIn>() + size_of::<input::SetxattrInMore>()
        }
        opcode::SETXATTR => size_of::<input::SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<input::GetxattrIn>(),
        opcode::FLUSH => size_of::<input::FlushIn>(),
        opcode::ACCESS => size_of::<input::AccessIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<input::CreateIn>(),
        opcode::INTERRUPT => size_of::<input::InterruptIn>(),
        opcode::IOCTL => size_of::<input::IoctlIn>(),
        opcode::FALLOCATE => size_of::<input::FallocateIn>(),
        opcode::LSEEK => size_of::<input::LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<input::CopyFileRangeIn>(),
        opcode::SYNCFS => size_of::<input::SyncfsIn>(),
        _ => return None,
    })
}

/// The longest fixed part.
pub(crate) const FIXED_MAX: usize = size_of::<input::SetattrIn>();

/// Parses the operation of a request. `fixed` has the length from `fixed_len`.
#[inline]
pub(crate) fn operation<'a>(
    header: &InHeader,
    fixed: &[u8],
    payload: &'a [u8],
) -> Parsed<Operation<'a>> {
    if let Some(fill) = fill(header.opcode, fixed, payload)? {
        return Ok(Operation::Fill(fill));
    }
    let extensions = usize::from(header.total_extlen) * 8;
    let names = payload.len().checked_sub(extensions).ok_or(Malformed)?;
    let (payload, extensions) = payload.split_at(names);
    plain(header, fixed, payload, extensions).map(Operation::Plain)
}

#[inline]
fn fill(operation: u32, fixed: &[u8], payload: &[u8]) -> Parsed<Option<Fill>> {
    Ok(Some(match operation {
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            let read: input::ReadIn = part(fixed)?;
            let (handle, offset, size) = (Handle(read.fh), read.offset, read.size);
            match operation {
                opcode::READ => Fill::Read {
                    handle,
                    offset,
                    size,
                    how: read_how(&read),
                },
                opcode::READDIR => Fill::Readdir {
                    handle,
                    offset,
                    size,
                },
                _ => Fill::Readdirplus {
                    handle,
                    offset,
                    size,
                },
            }
        }
        opcode::READLINK => Fill::Readlink,
        opcode::GETXATTR => {
            let wanted: input::GetxattrIn = part(fixed)?;
            Fill::Getxattr {
                name: only_name(payload)?.into(),
                size: wanted.size.min(XATTR_MAX_BYTES),
            }
        }
        opcode::LISTXATTR => {
            let wanted: input::GetxattrIn = part(fixed)?;
            let size = wanted.size.min(XATTR_MAX_BYTES);
            Fill::Listxattr { size }
        }
        opcode::IOCTL => {
            let asked: input::IoctlIn = part(fixed)?;
            let len = usize::try_from(asked.in_size).map_err(|_| Malformed)?;
            Fill::Ioctl {
                command: asked.cmd,
                input: payload.get(..len).ok_or(Malformed)?.into(),
                out_size: asked.out_size.min(IOCTL_MAX_BYTES),
            }
        }
        _ => return Ok(None),
    }))
}

#[inline]
fn plain<'a>(
    header: &InHeader,
    fixed: &[u8],
    payload: &'a [u8],
    extensions: &[u8],
) -> Parsed<Plain<'a>> {
    Ok(match header.opcode {
        opcode::LOOKUP => Plain::Lookup {
            name: only_name(payload)?,
        },
        opcode::UNLINK => Plain::Unlink {
            name: only_name(payload)?,
        },
        opcode::RMDIR => Plain::Rmdir {
            name: only_name(payload)?,
        },
        opcode::REMOVEXATTR => Plain::Removexattr {
            name: only_name(payload)?,
        },
        opcode::FORGET => {
            let input::ForgetIn { nlookup } = part(fixed)?;
            Plain::Forget { lookups: nlookup }
        }
        opcode::BATCH_FORGET => {
            let batch: input::BatchForgetIn = part(fixed)?;
            let len = usize::try_from(batch.count)
                .ok()
                .and_then(|count| count.checked_mul(size_of::<input::ForgetOne>()));
            let nodes = len.and_then(|len| payload.get(..len)).ok_or(Malformed)?;
            Plain::BatchForget {
                nodes: Forgotten(nodes),
            }
        }
        opcode::GETATTR => Plain::Getattr,
        opcode::STATX => Plain::Statx,
        opcode::SETATTR => setattr(&part(fixed)?),
        opcode::SYMLINK => {
            let (name, rest) = first_name(payload)?;
            Plain::Symlink {
                name,
                target: only_name(rest)?,
            }
        }
        opcode::MKNOD => {
            let asked: input::MknodIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, device_nr(asked.rdev), group);
            Plain::Mknod {
                name: only_name(payload)?,
                new,
            }
        }
        opcode::MKDIR => {
            let asked: input::MkdirIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, DeviceNr::default(), group);
            Plain::Mkdir {
                name: only_name(payload)?,
                new,
            }
        }
        opcode::RENAME => {
            let asked: input::RenameIn = part(fixed)?;
            rename(asked.newdir, RenameFlags::default(), payload)?
        }
        opcode::RENAME2 => {
            let asked: input::Rename2In = part(fixed)?;
            rename(asked.newdir, rename_flags(asked.flags)?, payload)?
        }
        opcode::LINK => {
            let asked: input::LinkIn = part(fixed)?;
            Plain::Link {
                node: NodeId(asked.oldnodeid),
                name: only_name(payload)?,
            }
        }
        opcode::OPEN => {
            let asked: input::OpenIn = part(fixed)?;
            Plain::Open {
                flags: open_flags(asked.flags, asked.open_flags),
            }
        }
        opcode::CREATE | opcode::TMPFILE => {
            let asked: input::CreateIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, DeviceNr::default(), group);
            let flags = open_flags(asked.flags, asked.open_flags);
            match header.opcode {
                opcode::CREATE => Plain::Create {
                    name: only_name(payload)?,
                    new,
                    flags,
                },
                _ => Plain::Tmpfile { new, flags },
            }
        }
        opcode::WRITE => {
            let asked: input::WriteIn = part(fixed)?;
            let len = usize::try_from(asked.size).map_err(|_| Malformed)?;
            Plain::Write {
                handle: Handle(asked.fh),
                offset: asked.offset,
                bytes: payload.get(..len).ok_or(Malformed)?,
                how: write_how(&asked),
            }
        }
        opcode::SETXATTR => setxattr(fixed, payload)?,
        opcode::NOTIFY_REPLY => Plain::NotifyReply { payload },
        _ => on_open_file(header, fixed)?,
    })
}

/// Parses requests on open files and on the file system, without a payload.
fn on_open_file<'a>(header: &InHeader, fixed: &[u8]) -> Parsed<Plain<'a>> {
    let operation = header.opcode;
    Ok(match operation {
        opcode::STATFS => Plain::Statfs,
        opcode::DESTROY => Plain::Destroy,
        opcode::SYNCFS => Plain::Syncfs,
        opcode::OPENDIR => Plain::Opendir,
        opcode::INTERRUPT => Plain::Interrupt,
        opcode::RELEASE | opcode::RELEASEDIR => {
            let asked: input::ReleaseIn = part(fixed)?;
            let handle = Handle(asked.fh);
            match operation {
                opcode::RELEASE => Plain::Release { handle },
                _ => Plain::Releasedir { handle },
            }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let asked: input::FsyncIn = part(fixed)?;
            let handle = Handle(asked.fh);
            let data_only = asked.fsync_flags & input::FSYNC_FDATASYNC != 0;
            match operation {
                opcode::FSYNC => Plain::Fsync { handle, data_only },
                _ => Plain::Fsyncdir { handle, data_only },
            }
        }
        opcode::FLUSH => {
            let asked: input::FlushIn = part(fixed)?;
            Plain::Flush {
                handle: Handle(asked.fh),
            }
        }
        opcode::ACCESS => {
            let asked: input::AccessIn = part(fixed)?;
            Plain::Access { mask: asked.mask }
        }
        opcode::FALLOCATE => {
            let asked: input::FallocateIn = part(fixed)?;
            Plain::Fallocate {
                handle: Handle(asked.fh),
                range: (asked.offset, asked.length),
                mode: asked.mode,
            }
        }
        opcode::LSEEK => {
            let asked: input::LseekIn = part(fixed)?;
            let what = match asked.whence {
                SEEK_DATA => Whence::Data,
                SEEK_HOLE => Whence::Hole,
                _ => Whence::Other,
            };
            Plain::Lseek {
                handle: Handle(asked.fh),
                offset: asked.offset,
                what,
            }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let asked: input::CopyFileRangeIn = part(fixed)?;
            Plain::CopyFileRange {
                from: CopyEnd {
                    node: NodeId(header.nodeid),
                    handle: Handle(asked.fh_in),
                    offset: asked.off_in,
                },
                to: CopyEnd {
                    node: NodeId(asked.nodeid_out),
                    handle: Handle(asked.fh_out),
                    offset: asked.off_out,
                },
                len: asked.len,
                wide: operation == opcode::COPY_FILE_RANGE_64,
            }
        }
        _ => return Err(Malformed),
    })
}

fn part<T: FromBytes>(fixed: &[u8]) -> Parsed<T> {
    T::read_from_prefix(fixed)
        .map(|(part, _)| part)
        .map_err(|_| Malformed)
}

/// Returns the bytes before the first zero byte, and those after it.
fn first_name(payload: &[u8]) -> Parsed<(&[u8], &[u8])> {
    let end = payload.iter().position(|&byte| byte == 0);
    let end = end.ok_or(Malformed)?;
    Ok((&payload[..end], &payload[end + 1..]))
}

fn only_name(payload: &[u8]) -> Parsed<&[u8]> {
    first_name(payload).map(|(name, _)| name)
}

fn rename(newdir: u64, flags: RenameFlags, payload: &[u8]) -> Parsed<Plain<'_>> {
    let (name, rest) = first_name(payload)?;
    let to = (NodeId(newdir), only_name(rest)?);
    Ok(Plain::Rename { name, to, flags })
}

fn rename_flags(bits: u32) -> Parsed<RenameFlags> {
    use rustix::fs::RenameFlags as Bits;
    let bits = Bits::from_bits_retain(bits);
    if !(bits - (Bits::NOREPLACE | Bits::EXCHANGE | Bits::WHITEOUT)).is_empty() {
        return Err(Malformed);
    }
    Ok(RenameFlags {
        no_replace: bits.contains(Bits::NOREPLACE),
        exchange: bits.contains(Bits::EXCHANGE),
        whiteout: bits.contains(Bits::WHITEOUT),
    })
}

fn setxattr<'a>(fixed: &[u8], payload: &'a [u8]) -> Parsed<Plain<'a>> {
    use rustix::fs::XattrFlags;
    let (asked, more) = input::SetxattrIn::read_from_prefix(fixed).map_err(|_| Malformed)?;
    let more = match more {
        [] => 0,
        more => part::<input::SetxattrInMore>(more)?.setxattr_flags,
    };
    let (name, rest) = first_name(payload)?;
    let len = usize::try_from(asked.size).map_err(|_| Malformed)?;
    let flags = XattrFlags::from_bits_retain(asked.flags);
    Ok(Plain::Setxattr {
        name,
        value: rest.get(..len).ok_or(Malformed)?,
        how: XattrHow {
            create: flags.contains(XattrFlags::CREATE),
            replace: flags.contains(XattrFlags::REPLACE),
            kill_setgid: more & input::SETXATTR_ACL_KILL_SGID != 0,
        },
    })
}

fn setattr<'a>(asked: &input::SetattrIn) -> Plain<'a> {
    let has = |bit| asked.valid & bit != 0;
    let time = |set, now, secs: u64, nanos| {
        let at = Time {
            secs: secs.cast_signed(),
            nanos,
        };
        match (has(set), has(now)) {
            (true, true) => Some(TimeChange::Now),
            (true, false) => Some(TimeChange::At(at)),
            (false, _) => None,
        }
    };
    let change = AttrChange {
        mode: has(fattr::MODE).then_some(asked.mode),
        uid: has(fattr::UID).then_some(asked.uid),
        gid: has(fattr::GID).then_some(asked.gid),
        size_bytes: has(fattr::SIZE).then_some(asked.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: has(fattr::CTIME).then_some(Time {
            secs: asked.ctime.cast_signed(),
            nanos: asked.ctimensec,
        }),
        kill_setid: has(fattr::KILL_SUIDGID),
    };
    let handle = has(fattr::FH).then_some(Handle(asked.fh));
    Plain::Setattr { handle, change }
}

fn new_node(mode: u32, umask: u32, rdev: DeviceNr, directory_group: Option<u32>) -> NewNode {
    NewNode {
        mode,
        umask,
        rdev,
        directory_group,
    }
}

/// Returns the group in an extension of groups. The kernel sends at most one: the directory's, if the caller is a
/// member.
fn directory_group(mut extensions: &[u8]) -> Parsed<Option<u32>> {
    while !extensions.is_empty() {
        let (header, rest) =
            input::ExtHeader::read_from_prefix(extensions).map_err(|_| Malformed)?;
        let len = usize::try_from(header.size).map_err(|_| Malformed)?;
        let body = len.checked_sub(size_of::<input::ExtHeader>());
        let body = body.and_then(|len| rest.get(..len)).ok_or(Malformed)?;
        if header.kind == input::EXT_GROUPS {
            let (groups, list) =
                input::SuppGroups::read_from_prefix(body).map_err(|_| Malformed)?;
            return match groups.nr_groups {
                0 => Ok(None),
                _ => part(list).map(Some),
            };
        }
        // Extensions are aligned to 8 bytes.
        extensions = len
            .checked_next_multiple_of(8)
            .and_then(|len| extensions.get(len..))
            .unwrap_or_default();
    }
    Ok(None)
}

fn device_nr(encoded: u32) -> DeviceNr {
    DeviceNr {
        major: (encoded >> 8) & 0xfff,
        minor: (encoded & 0xff) | ((encoded >> 12) & 0xf_ff00),
    }
}

fn open_flags(flags: u32, fuse_flags: u32) -> OpenFlags {
    let bits = OFlags::from_bits_retain(flags);
    OpenFlags {
        access: match bits & OFlags::RWMODE {
            OFlags::RDWR => AccessMode::ReadWrite,
            OFlags::WRONLY => AccessMode::Write,
            _ => AccessMode::Read,
        },
        append: bits.contains(OFlags::APPEND),
        truncate: bits.contains(OFlags::TRUNC),
        exclusive: bits.contains(OFlags::EXCL),
        direct: bits.contains(OFlags::DIRECT),
        // `O_SYNC` is `O_DSYNC` and one more bit.
        sync: bits.intersects(OFlags::SYNC),
        no_atime: bits.contains(OFlags::NOATIME),
        kill_setid: fuse_flags & input::OPEN_KILL_SUIDGID != 0,
    }
}

fn read_how(asked: &input::ReadIn) -> ReadHow {
    ReadHow {
        no_atime: OFlags::from_bits_retain(asked.flags).contains(OFlags::NOATIME),
    }
}

fn write_how(asked: &input::WriteIn) -> WriteHow {
    let bits = OFlags::from_bits_retain(asked.flags);
    let from_cache = asked.write_flags & input::WRITE_CACHE != 0;
    // Only a write that bypasses the cache has a lock owner. `O_DIRECT` alone proves nothing: it is also set for a
    // fallback through the cache, for which the kernel waits with pages locked.
    let is_past_cache = asked.write_flags & input::WRITE_LOCKOWNER != 0;
    WriteHow {
        from_cache,
        kill_setid: asked.write_flags & input::WRITE_KILL_SUIDGID != 0,
        direct: is_past_cache && !from_cache,
        append: bits.contains(OFlags::APPEND) && !from_cache,
        sync: bits.intersects(OFlags::SYNC) && !from_cache,
    }
}

#[cfg(test)]
mod tests;

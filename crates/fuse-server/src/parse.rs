//! Parsing the bytes of a request.
//!
//! A request is a header, a fixed part whose length depends on the operation, and a payload: names, values, contents,
//! extensions. No length is trusted: a mismatch is `Malformed`.
//!
//! An operation borrows its arguments from the payload. A payload that the answer may overwrite is therefore copied
//! first (`opcode::fills_buffer`).
//!
//! Not here: the lengths of fixed parts (`opcode`), and the call of the file system (`answer`).

use rustix::fs::OFlags;
use zerocopy::FromBytes;

use crate::abi::input::{self, fattr};
use crate::abi::{InHeader, opcode};
use crate::request::{
    AccessMode, AttrChange, CopyEnd, DeviceNr, Handle, NewNode, NodeId, OpenFlags, Operation,
    ReadHow, RenameFlags, SeekFor, Time, TimeChange, WriteHow, XattrHow,
};

/// A request that does not have the form of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

type Parsed<T> = Result<T, Malformed>;

/// The size of a restricted ioctl's argument has 14 bits.
const IOCTL_MAX_BYTES: u32 = (1 << 14) - 1;
/// The maximum size of an xattr's value, and of a list of names, in the kernel.
const XATTR_MAX_BYTES: u32 = 1 << 16;

/// The answer to a copy has 32 bits unless it is a `COPY_FILE_RANGE_64`; the kernel sends another request for the rest.
const COPY_NARROW_MAX_BYTES: u64 = 1 << 30;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Parses the nodes of a `BATCH_FORGET`, and the number of dropped lookups of each.
pub(crate) fn forgotten(
    fixed: &[u8],
    payload: &[u8],
) -> Parsed<impl Iterator<Item = (NodeId, u64)>> {
    let batch: input::BatchForgetIn = part(fixed)?;
    let len = usize::try_from(batch.count)
        .ok()
        .and_then(|count| count.checked_mul(size_of::<input::ForgetOne>()));
    let nodes = len.and_then(|len| payload.get(..len)).ok_or(Malformed)?;
    let each = nodes.chunks_exact(size_of::<input::ForgetOne>());
    Ok(each
        .filter_map(|one| input::ForgetOne::read_from_bytes(one).ok())
        .map(|one| (NodeId(one.nodeid), one.nlookup)))
}

/// Parses the operation of a request. `fixed` has the length from `opcode::fixed_len`.
#[inline]
pub(crate) fn operation<'a>(
    header: &InHeader,
    fixed: &[u8],
    payload: &'a [u8],
) -> Parsed<Operation<'a>> {
    let extensions = usize::from(header.total_extlen) * 8;
    let names = payload.len().checked_sub(extensions).ok_or(Malformed)?;
    let (payload, extensions) = payload.split_at(names);
    Ok(match header.opcode {
        opcode::LOOKUP => Operation::Lookup {
            name: only_name(payload)?,
        },
        opcode::UNLINK => Operation::Unlink {
            name: only_name(payload)?,
        },
        opcode::RMDIR => Operation::Rmdir {
            name: only_name(payload)?,
        },
        opcode::REMOVEXATTR => Operation::Removexattr {
            name: only_name(payload)?,
        },
        opcode::FORGET => {
            let input::ForgetIn { nlookup } = part(fixed)?;
            Operation::Forget { lookups: nlookup }
        }
        opcode::GETATTR | opcode::STATX => Operation::Getattr,
        opcode::SETATTR => setattr(&part(fixed)?),
        opcode::SYMLINK => {
            let (name, rest) = first_name(payload)?;
            Operation::Symlink {
                name,
                target: only_name(rest)?,
            }
        }
        opcode::MKNOD => {
            let asked: input::MknodIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, device_nr(asked.rdev), group);
            Operation::Mknod {
                name: only_name(payload)?,
                new,
            }
        }
        opcode::MKDIR => {
            let asked: input::MkdirIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, DeviceNr::default(), group);
            Operation::Mkdir {
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
            Operation::Link {
                target: NodeId(asked.oldnodeid),
                name: only_name(payload)?,
            }
        }
        opcode::OPEN => {
            let asked: input::OpenIn = part(fixed)?;
            Operation::Open {
                flags: open_flags(asked.flags, asked.open_flags),
            }
        }
        opcode::CREATE | opcode::TMPFILE => {
            let asked: input::CreateIn = part(fixed)?;
            let group = directory_group(extensions)?;
            let new = new_node(asked.mode, asked.umask, DeviceNr::default(), group);
            let flags = open_flags(asked.flags, asked.open_flags);
            match header.opcode {
                opcode::CREATE => Operation::Create {
                    name: only_name(payload)?,
                    new,
                    flags,
                },
                _ => Operation::Tmpfile { new, flags },
            }
        }
        opcode::WRITE => {
            let asked: input::WriteIn = part(fixed)?;
            let len = usize::try_from(asked.size).map_err(|_| Malformed)?;
            Operation::Write {
                handle: Handle(asked.fh),
                offset: asked.offset,
                bytes: payload.get(..len).ok_or(Malformed)?,
                how: write_how(&asked),
            }
        }
        opcode::SETXATTR => setxattr(fixed, payload)?,
        opcode::GETXATTR => {
            let asked: input::GetxattrIn = part(fixed)?;
            Operation::Getxattr {
                name: only_name(payload)?,
                size: asked.size.min(XATTR_MAX_BYTES),
            }
        }
        opcode::IOCTL => {
            let asked: input::IoctlIn = part(fixed)?;
            let len = usize::try_from(asked.in_size).map_err(|_| Malformed)?;
            Operation::Ioctl {
                command: asked.cmd,
                input: payload.get(..len).ok_or(Malformed)?,
                size: asked.out_size.min(IOCTL_MAX_BYTES),
            }
        }
        _ => without_payload(header, fixed)?,
    })
}

/// Parses the requests without a payload.
#[inline]
fn without_payload<'a>(header: &InHeader, fixed: &[u8]) -> Parsed<Operation<'a>> {
    let operation = header.opcode;
    Ok(match operation {
        opcode::STATFS => Operation::Statfs,
        opcode::DESTROY => Operation::Destroy,
        opcode::SYNCFS => Operation::Syncfs,
        opcode::OPENDIR => Operation::Opendir,
        opcode::READLINK => Operation::Readlink,
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            let asked: input::ReadIn = part(fixed)?;
            let (handle, offset, size) = (Handle(asked.fh), asked.offset, asked.size);
            match operation {
                opcode::READ => Operation::Read {
                    handle,
                    offset,
                    size,
                    how: read_how(&asked),
                },
                opcode::READDIR => Operation::Readdir {
                    handle,
                    offset,
                    size,
                },
                _ => Operation::Readdirplus {
                    handle,
                    offset,
                    size,
                },
            }
        }
        opcode::LISTXATTR => {
            let asked: input::GetxattrIn = part(fixed)?;
            let size = asked.size.min(XATTR_MAX_BYTES);
            Operation::Listxattr { size }
        }
        opcode::RELEASE | opcode::RELEASEDIR => {
            let asked: input::ReleaseIn = part(fixed)?;
            let handle = Handle(asked.fh);
            match operation {
                opcode::RELEASE => Operation::Release { handle },
                _ => Operation::Releasedir { handle },
            }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let asked: input::FsyncIn = part(fixed)?;
            let handle = Handle(asked.fh);
            let data_only = asked.fsync_flags & input::FSYNC_FDATASYNC != 0;
            match operation {
                opcode::FSYNC => Operation::Fsync { handle, data_only },
                _ => Operation::Fsyncdir { handle, data_only },
            }
        }
        opcode::FLUSH => {
            let asked: input::FlushIn = part(fixed)?;
            Operation::Flush {
                handle: Handle(asked.fh),
            }
        }
        opcode::ACCESS => {
            let asked: input::AccessIn = part(fixed)?;
            Operation::Access { mask: asked.mask }
        }
        opcode::FALLOCATE => {
            let asked: input::FallocateIn = part(fixed)?;
            Operation::Fallocate {
                handle: Handle(asked.fh),
                range: (asked.offset, asked.length),
                mode: asked.mode,
            }
        }
        opcode::LSEEK => {
            let asked: input::LseekIn = part(fixed)?;
            let what = match asked.whence {
                SEEK_DATA => SeekFor::Data,
                SEEK_HOLE => SeekFor::Hole,
                _ => return Err(Malformed),
            };
            Operation::Lseek {
                handle: Handle(asked.fh),
                offset: asked.offset,
                what,
            }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let asked: input::CopyFileRangeIn = part(fixed)?;
            Operation::CopyFileRange {
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
                len: match operation {
                    opcode::COPY_FILE_RANGE_64 => asked.len,
                    _ => asked.len.min(COPY_NARROW_MAX_BYTES),
                },
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

fn rename(newdir: u64, flags: RenameFlags, payload: &[u8]) -> Parsed<Operation<'_>> {
    let (name, rest) = first_name(payload)?;
    let to = (NodeId(newdir), only_name(rest)?);
    Ok(Operation::Rename { name, to, flags })
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

fn setxattr<'a>(fixed: &[u8], payload: &'a [u8]) -> Parsed<Operation<'a>> {
    use rustix::fs::XattrFlags;
    let (asked, more) = input::SetxattrIn::read_from_prefix(fixed).map_err(|_| Malformed)?;
    let more = match more {
        [] => 0,
        more => part::<input::SetxattrInMore>(more)?.setxattr_flags,
    };
    let (name, rest) = first_name(payload)?;
    let len = usize::try_from(asked.size).map_err(|_| Malformed)?;
    let flags = XattrFlags::from_bits_retain(asked.flags);
    Ok(Operation::Setxattr {
        name,
        value: rest.get(..len).ok_or(Malformed)?,
        how: XattrHow {
            create: flags.contains(XattrFlags::CREATE),
            replace: flags.contains(XattrFlags::REPLACE),
            kill_setgid: more & input::SETXATTR_ACL_KILL_SGID != 0,
        },
    })
}

fn setattr<'a>(asked: &input::SetattrIn) -> Operation<'a> {
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
    Operation::Setattr { handle, change }
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

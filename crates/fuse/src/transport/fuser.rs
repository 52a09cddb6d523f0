//! The transport on the fuser crate.
//!
//! Threads each read requests from a clone of the connection's descriptor (the connection's own one
//! where `/dev/fuse` cannot be opened again, as behind fusermount3 on a machine that guards it).
//!
//! What fuser cannot carry
//! - `statx`: no birth time; the kernel falls back to `getattr`.
//! - a node id that differs from the inode number shown: the two must be equal in an `Entry`. The root
//!   is exempt, because the kernel knows its node without an entry.
//! - separate lifetimes for the name and the attributes in `readdirplus`: the shorter one is used.
//!
//! Access by other users is the kernel's decision (`allow_other`), so fuser's own check is off.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request, Session, SessionACL,
};

use crate::request::{
    AccessMode, Attr, Attributes, Context, DirEntry, DirPlusSink, DirSink, Entry, Errno, FileKind,
    FileSystem, Handle, Lookup, NodeId, Opened, Room, SeekFor, Time,
};

/// The kernel takes at most 256 pages in a request.
const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Requests that nobody waits for (read-ahead) in flight at once.
const MAX_BACKGROUND: u16 = 64;
const PATH_MAX: usize = 4096;
/// What the kernel takes as the value of an xattr, and as a list of names.
const XATTR_MAX_BYTES: usize = 1 << 16;

pub(super) fn establish<F: FileSystem>(
    file_system: F,
    device: OwnedFd,
    threads: NonZeroUsize,
) -> io::Result<Session<Adapted<F>>> {
    let mut config = Config::default();
    config.n_threads = Some(threads.get());
    config.clone_fd = threads.get() > 1 && can_open_device();
    let adapted = Adapted {
        file_system,
        elide_open: false,
        elide_opendir: false,
    };
    Session::from_fd(adapted, device, SessionACL::All, config)
}

/// Whether each thread can get a descriptor of its own.
fn can_open_device() -> bool {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok()
}

/// A `FileSystem` as fuser wants to see one.
pub(super) struct Adapted<F> {
    file_system: F,
    elide_open: bool,
    elide_opendir: bool,
}

thread_local! {
    /// Where contents are read to before they are sent; one for each serving thread, as large as the
    /// largest request it has seen.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn with_buffer<T>(len: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        fill(&mut buffer[..len])
    })
}

fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.code())
}

fn context(request: &Request) -> Context {
    Context {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

fn handle(handle: FileHandle) -> Handle {
    Handle(handle.0)
}

/// Times beyond what the C library's 64-bit seconds can say become 1970.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let second = if time.secs < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(time.nanos.into())))
        .unwrap_or(UNIX_EPOCH)
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.permissions,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // The protocol carries the C library's 32-bit form: 12 bits of major around 20 of minor.
        rdev: (attr.rdev.minor & 0xff)
            | ((attr.rdev.major & 0xfff) << 8)
            | ((attr.rdev.minor & 0xf_ff00) << 12),
        blksize: attr.block_bytes,
        flags: 0,
    }
}

/// Attributes that only say which kind a file is, to go with a lifetime of zero.
fn placeholder(ino: u64, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

struct Names<'a>(&'a mut ReplyDirectory);

impl DirSink for Names<'_> {
    fn push(&mut self, entry: &DirEntry<'_>) -> Room {
        let full = self.0.add(
            INodeNo(entry.ino),
            entry.next_offset,
            file_type(entry.kind),
            OsStr::from_bytes(entry.name),
        );
        if full { Room::Full } else { Room::Taken }
    }
}

struct NamesPlus<'a>(&'a mut ReplyDirectoryPlus);

impl DirPlusSink for NamesPlus<'_> {
    fn push(&mut self, entry: &DirEntry<'_>, found: Option<&Entry>) -> Room {
        let (attr, generation, ttl) = match found {
            Some(found) => (
                file_attr(&found.attributes.attr),
                found.generation,
                found.ttl.min(found.attributes.ttl),
            ),
            None => (placeholder(entry.ino, entry.kind), 0, Duration::ZERO),
        };
        let full = self.0.add(
            attr.ino,
            entry.next_offset,
            OsStr::from_bytes(entry.name),
            &ttl,
            &attr,
            Generation(generation),
        );
        if full { Room::Full } else { Room::Taken }
    }
}

impl<F> Adapted<F> {
    fn opened(opened: Opened, elide: bool, cache: FopenFlags, reply: ReplyOpen) {
        match opened {
            Opened::Elided if elide => reply.error(fuser::Errno::ENOSYS),
            Opened::Elided => reply.opened(FileHandle(0), cache),
            Opened::Handle {
                handle,
                keep_cache,
                direct,
            } => {
                let mut flags = match keep_cache {
                    true => cache,
                    false => FopenFlags::empty(),
                };
                flags.set(FopenFlags::FOPEN_DIRECT_IO, direct);
                reply.opened(FileHandle(handle.0), flags);
            }
        }
    }

    /// Answers an xattr request: the length when `size` is 0, else the bytes.
    fn xattr(
        size: u32,
        reply: ReplyXattr,
        fill: impl FnOnce(&mut [u8]) -> crate::request::Result<usize>,
    ) {
        let len = usize::try_from(size).map_or(XATTR_MAX_BYTES, |size| size.min(XATTR_MAX_BYTES));
        with_buffer(len, |out| match fill(out) {
            Ok(len) if size == 0 => match u32::try_from(len) {
                Ok(len) => reply.size(len),
                Err(_) => reply.error(fuser::Errno::ERANGE),
            },
            Ok(len) => reply.data(&out[..len]),
            Err(error) => reply.error(errno(error)),
        });
    }
}

impl<F: FileSystem> Filesystem for Adapted<F> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        // Not READDIRPLUS_AUTO: it stops sending attributes to those who list all of a directory before they
        // stat, as find and rsync do, and each stat then costs a request of its own.
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.file_system.wishes().posix_acl {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        self.elide_open = offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.elide_opendir = offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        let refused = config.add_capabilities(wanted & offered).is_err()
            || config.set_max_write(MAX_REQUEST_BYTES).is_err()
            || config.set_max_background(MAX_BACKGROUND).is_err();
        assert!(!refused, "only what was offered is asked for");
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self
            .file_system
            .lookup(&context(request), node(parent), name.as_bytes())
        {
            Ok(Lookup::Found(entry)) => reply.entry_with_ttls(
                &entry.attributes.ttl,
                &entry.ttl,
                &file_attr(&entry.attributes.attr),
                Generation(entry.generation),
            ),
            // Node 0 says that there is no such name for as long as the lifetime.
            Ok(Lookup::Absent { ttl }) => {
                reply.entry(&ttl, &placeholder(0, FileKind::Regular), Generation(0))
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.file_system.forget(node(ino), lookups);
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.file_system.getattr(&context(request), node(ino)) {
            Ok(Attributes { attr, ttl }) => reply.attr(&ttl, &file_attr(&attr)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        with_buffer(PATH_MAX, |out| {
            match self.file_system.readlink(&context(request), node(ino), out) {
                Ok(len) => reply.data(&out[..len]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // It is mounted read-only.
        let flags = crate::request::OpenFlags {
            access: AccessMode::Read,
            append: false,
            truncate: false,
            exclusive: false,
            direct: false,
            sync: false,
            no_atime: false,
            kill_setid: false,
        };
        match self.file_system.open(&context(request), node(ino), flags) {
            Ok(opened) => {
                Self::opened(opened, self.elide_open, FopenFlags::FOPEN_KEEP_CACHE, reply)
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = size.min(MAX_REQUEST_BYTES) as usize;
        with_buffer(len, |out| {
            let context = context(request);
            match self
                .file_system
                .read(&context, node(ino), handle(fh), offset, out)
            {
                Ok(len) => reply.data(&out[..len]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match self
            .file_system
            .release(&context(request), node(ino), handle(fh))
        {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    // Nothing is ever waiting to be written: the kernel is told not to ask again.
    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let cache = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        match self.file_system.opendir(&context(request), node(ino)) {
            Ok(opened) => Self::opened(opened, self.elide_opendir, cache, reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let outcome = self.file_system.readdir(
            &context(request),
            node(ino),
            handle(fh),
            offset,
            &mut Names(&mut reply),
        );
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let outcome = self.file_system.readdirplus(
            &context(request),
            node(ino),
            handle(fh),
            offset,
            &mut NamesPlus(&mut reply),
        );
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        match self
            .file_system
            .releasedir(&context(request), node(ino), handle(fh))
        {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.file_system.statfs(&context(request), node(ino)) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_available,
                // btrfs has no table of inodes that could fill up.
                0,
                0,
                stat.block_bytes,
                stat.name_max,
                stat.block_bytes,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        Self::xattr(size, reply, |out| {
            self.file_system
                .getxattr(&context(request), node(ino), name.as_bytes(), out)
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        Self::xattr(size, reply, |out| {
            self.file_system
                .listxattr(&context(request), node(ino), out)
        });
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let mask = mask.bits().unsigned_abs();
        match self.file_system.access(&context(request), node(ino), mask) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // SEEK_DATA and SEEK_HOLE; the kernel answers the others.
        let what = match whence {
            3 => SeekFor::Data,
            4 => SeekFor::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        // A negative offset is before the file, and what it finds lies past the end.
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(fuser::Errno::ENXIO);
        };
        let found = self
            .file_system
            .lseek(&context(request), node(ino), handle(fh), offset, what);
        match found.map(i64::try_from) {
            Ok(Ok(found)) => reply.offset(found),
            Ok(Err(_)) => reply.error(fuser::Errno::EOVERFLOW),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        // The size of a restricted ioctl's argument has 14 bits.
        let len = out_size.min(1 << 14) as usize;
        with_buffer(len, |out| {
            match self
                .file_system
                .ioctl(&context(request), node(ino), command, input, out)
            {
                Ok(len) => reply.ioctl(0, &out[..len]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}

#[cfg(test)]
mod tests;

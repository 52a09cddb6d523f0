//! The operations of requests as values, and their answers.
//!
//! An operation has the arguments of its request. It borrows names and contents from the memory of the transport. The
//! table below is the only list of the operations: `Verb`, without arguments, is made from it.

use std::time::Duration;

use super::{
    AttrChange, Attributes, CopyEnd, Entry, Handle, IoctlAnswer, NewNode, NodeId, OpenFlags,
    Opened, ReadHow, RenameFlags, SeekFor, StatFs, WriteHow, XattrHow,
};

/// Declares the operations, each with its name in statistics and its arguments.
macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident $label:literal $({ $($field:ident: $kind:ty),+ })?;)+) => {
        /// The kind of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Verb {
            $($name,)+
        }

        impl Verb {
            pub const ALL: [Verb; [$(Verb::$name),+].len()] = [$(Verb::$name),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Verb::$name => $label,)+
                }
            }
        }

        /// The operation of a request on a node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation<'a> {
            $($(#[$meta])* $name $({ $($field: $kind),+ })?,)+
        }

        impl Operation<'_> {
            #[inline]
            pub fn verb(&self) -> Verb {
                match self {
                    $(Operation::$name { .. } => Verb::$name,)+
                }
            }
        }
    };
}

operations! {
    /// Looks up a name in the directory. Answer: `Entry` or `Absent`.
    Lookup "lookup" { name: &'a [u8] };
    /// Releases lookups of the node that the kernel dropped. Its result is ignored.
    Forget "forget" { lookups: u64 };
    /// Answer: `Attributes`.
    Getattr "getattr";
    /// Changes attributes, including the size. Answer: all `Attributes`.
    Setattr "setattr" { handle: Option<Handle>, change: AttrChange };
    /// Reads the target of a symbolic link. Answer: `Len`.
    Readlink "readlink";
    /// Creates a file of any kind except directory and symbolic link. Answer: `Entry`.
    Mknod "mknod" { name: &'a [u8], new: NewNode };
    /// Answer: `Entry`.
    Mkdir "mkdir" { name: &'a [u8], new: NewNode };
    /// Answer: `Entry`.
    Symlink "symlink" { name: &'a [u8], target: &'a [u8] };
    /// Creates another name for `target` in the directory. Answer: `Entry`.
    Link "link" { target: NodeId, name: &'a [u8] };
    Unlink "unlink" { name: &'a [u8] };
    Rmdir "rmdir" { name: &'a [u8] };
    Rename "rename" { name: &'a [u8], to: (NodeId, &'a [u8]), flags: RenameFlags };
    /// Creates a regular file and opens it. Opens an existing file unless `flags` are exclusive. Answer: `Created`.
    Create "create" { name: &'a [u8], new: NewNode, flags: OpenFlags };
    /// Creates a regular file without a name and opens it. Answer: `Created`.
    Tmpfile "tmpfile" { new: NewNode, flags: OpenFlags };
    /// Answer: `Opened`.
    Open "open" { flags: OpenFlags };
    /// Reads from `offset` on; short only at the end of the file. Answer: `Len`.
    Read "read" { handle: Handle, offset: u64, size: u32, how: ReadHow };
    /// Answer: `Written`.
    Write "write" { handle: Handle, offset: u64, bytes: &'a [u8], how: WriteHow };
    /// Handles the close of one descriptor of an open file. `NOSYS` stops the kernel from sending this and all later
    /// ones.
    Flush "flush" { handle: Handle };
    /// Makes a file durable; `data_only` leaves out attributes that reading the data does not need.
    Fsync "fsync" { handle: Handle, data_only: bool };
    Fsyncdir "fsyncdir" { handle: Handle, data_only: bool };
    /// Makes everything durable.
    Syncfs "syncfs";
    /// Changes the allocation of a range of a file. `mode` is as in fallocate(2).
    Fallocate "fallocate" { handle: Handle, range: (u64, u64), mode: u32 };
    /// Copies up to `len` bytes; shares extents where it can. Answer: `Copied`.
    CopyFileRange "copy_file_range" { from: CopyEnd, to: CopyEnd, len: u64 };
    Release "release" { handle: Handle };
    /// Answer: `Opened`.
    Opendir "opendir";
    /// Emits entries from `offset` on (0, or a `next_offset` of an entry) until the sink is full.
    Readdir "readdir" { handle: Handle, offset: u64, size: u32 };
    /// Emits entries like `Readdir`, with the result of a lookup of each name.
    Readdirplus "readdirplus" { handle: Handle, offset: u64, size: u32 };
    Releasedir "releasedir" { handle: Handle };
    /// Reads the value of an extended attribute. Answer: its length, as `Len`. A room of no bytes requests only the
    /// length; one that is too small is `ERANGE`.
    Getxattr "getxattr" { name: &'a [u8], size: u32 };
    /// Lists the names of all xattrs, each with a zero byte after it. Lengths are as in `Getxattr`.
    Listxattr "listxattr" { size: u32 };
    Setxattr "setxattr" { name: &'a [u8], value: &'a [u8], how: XattrHow };
    Removexattr "removexattr" { name: &'a [u8] };
    /// Answer: `StatFs`.
    Statfs "statfs";
    /// Checks the access of the caller to the node. Sent only if the kernel does not check permissions itself. `mask`
    /// is as in access(2); `ENOSYS` grants this request and all later ones.
    Access "access" { mask: u32 };
    /// Finds the first offset of data or a hole at or after `offset`. The error is `ENXIO` if there is no such offset.
    /// Answer: `Offset`.
    Lseek "lseek" { handle: Handle, offset: u64, what: SeekFor };
    /// Runs a restricted ioctl, whose sizes are encoded in the command's number. Answer: `Ioctl`.
    Ioctl "ioctl" { command: u32, input: &'a [u8], size: u32 };
    /// The orderly end of the connection by the kernel. Not every kind of mount receives this request. A mount of a
    /// block device does: after the answer the device is free for any program. Errors: only `WOULD_BLOCK`; no client
    /// would receive another.
    Destroy "destroy";
}

/// The result of an operation, in the variant that the operation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success, for all operations that name no other.
    Done,
    /// A name that exists. Returning it counts as one lookup of its node.
    Entry(Entry),
    /// There is no such name, and the kernel may cache that.
    Absent {
        ttl: Duration,
    },
    Attributes(Attributes),
    Opened(Opened),
    Created(Entry, Opened),
    /// The length of the answer in the room that the operation filled.
    Len(usize),
    /// The number of bytes taken from the request.
    Written(usize),
    Copied(u64),
    Offset(u64),
    StatFs(StatFs),
    Ioctl(IoctlAnswer),
}

//! The kernel's FUSE protocol, versions 7.31 to 7.45, as bytes: headers, operation numbers, notices.
//!
//! Structs have the kernel's field names and the machine's byte order. `input` has the messages from the kernel,
//! `output` the answers, and `init` the negotiation. The source is the public header `linux/fuse.h` (under its BSD
//! licence).
//!
//! Not here: the interpretation of requests (`parse`) and the construction of answers (`answer`).

pub(super) mod init;
pub(super) mod input;
pub(super) mod opcode;
pub(super) mod output;
pub(super) mod uring;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Asserts that structs have the kernel's sizes.
macro_rules! sizes {
    ($($name:ident = $size:literal),+ $(,)?) => {
        $(const _: () = assert!(size_of::<$name>() == $size);)+
    };
}
pub(super) use sizes;

pub(super) const MAJOR: u32 = 7;
/// The newest protocol version that this code was checked against.
pub(super) const MINOR: u32 = 45;
/// Older versions lack too much (4.20 has 7.28, 5.4 has 7.31).
pub(super) const OLDEST_MINOR: u32 = 31;

/// The first version that surely sends an FSYNC after a write through the cache with `O_SYNC` (6.2).
pub(super) const SYNCING_MINOR: u32 = 38;

/// The minimum buffer for a read of the device.
pub(super) const MIN_READ_BUFFER: usize = 8192;

/// The header of each request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    /// The length of all extensions, which are at the end, in units of 8 bytes.
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// The header of each answer, and of a notification, which has `unique` 0 and its code in `error`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    /// A negative errno, or 0.
    pub(super) error: i32,
    pub(super) unique: u64,
}

sizes!(InHeader = 40, OutHeader = 16);

pub(super) const NOTIFY_INVAL_INODE: i32 = 2;
pub(super) const NOTIFY_INVAL_ENTRY: i32 = 3;
pub(super) const NOTIFY_RETRIEVE: i32 = 5;
pub(super) const NOTIFY_DELETE: i32 = 6;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    pub(super) off: u64,
    pub(super) namelen: u32,
    /// The `d_type` of readdir(3).
    pub(super) kind: u32,
}

/// The alignment of directory records.
pub(super) const RECORD_ALIGN: usize = 8;

sizes!(Dirent = 24);

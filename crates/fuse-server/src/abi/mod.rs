//! The kernel's FUSE protocol, versions 7.31 to 7.45, as bytes: headers, operation numbers, notices.
//!
//! Structs have the kernel's field names and are in the machine's byte order. `input` is what the kernel
//! sends, `output` what it is answered, `init` how both agree. Everything is taken from the public header
//! `linux/fuse.h` (its BSD licence).
//!
//! Not here: what a request means (`parse`) and how an answer is made (`answer`).

pub(super) mod init;
pub(super) mod input;
pub(super) mod opcode;
pub(super) mod output;
pub(super) mod uring;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Asserts the sizes of structs as the kernel has them.
macro_rules! sizes {
    ($($name:ident = $size:literal),+ $(,)?) => {
        $(const _: () = assert!(size_of::<$name>() == $size);)+
    };
}
pub(super) use sizes;

pub(super) const MAJOR: u32 = 7;
/// The newest version that all of this is known to be right for.
pub(super) const MINOR: u32 = 45;
/// Older ones lack too much (4.20 has 7.28, 5.4 has 7.31).
pub(super) const OLDEST_MINOR: u32 = 31;

/// From here on, at the latest, an FSYNC follows a write with `O_SYNC` that did not pass the kernel's cache by (6.2).
pub(super) const SYNCING_MINOR: u32 = 38;

/// A read of the device must offer as much.
pub(super) const MIN_READ_BUFFER: usize = 8192;

/// Before each request.
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
    /// In units of 8 bytes: what follows all else.
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// Before each answer, and before a notice, whose `unique` is 0 and whose `error` is its kind.
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

/// Records of directories begin at multiples of this.
pub(super) const RECORD_ALIGN: usize = 8;

sizes!(Dirent = 24);

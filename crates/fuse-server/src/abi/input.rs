//! The fixed parts of requests. Names, values and contents follow them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::sizes;

/// Declares structs that the kernel sends.
macro_rules! inputs {
    ($($(#[$meta:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty),+ $(,)? })+) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name {
                $($(#[$of_field])* pub(crate) $field: $kind,)+
            }
        )+
    };
}

inputs! {
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// The body of `OPEN` and `OPENDIR`.
    OpenIn {
        /// The flags of open(2).
        flags: u32,
        open_flags: u32,
    }
    /// The body of `CREATE` and `TMPFILE`.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// The body of `RELEASE` and `RELEASEDIR`.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// The body of `READ`, `READDIR` and `READDIRPLUS`.
    ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        /// The flags of open(2).
        flags: u32,
        padding: u32,
    }
    /// The body of `FSYNC` and `FSYNCDIR`.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32 }
    /// The fields after `SetxattrIn` if `SETXATTR_EXT` was negotiated.
    SetxattrInMore { setxattr_flags: u32, padding: u32 }
    /// The body of `GETXATTR` and `LISTXATTR`.
    GetxattrIn { size: u32, padding: u32 }
    AccessIn { mask: u32, padding: u32 }
    InterruptIn { unique: u64 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// The head of a `NOTIFY_REPLY`. Over io_uring it is in the payload.
    RetrieveIn {
        padding: u64,
        offset: u64,
        size: u32,
        padding2: u32,
        padding3: [u64; 2],
    }
    CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    SyncfsIn { padding: u64 }
    /// The header of each extension of a request.
    ExtHeader {
        /// The size of the whole extension.
        size: u32,
        kind: u32,
    }
    /// Follows the header of an `EXT_GROUPS` extension. The group ids follow it.
    SuppGroups { nr_groups: u32 }
}

sizes!(
    ForgetIn = 8,
    ForgetOne = 16,
    BatchForgetIn = 8,
    GetattrIn = 16,
    StatxIn = 24,
    MknodIn = 16,
    MkdirIn = 8,
    RenameIn = 8,
    Rename2In = 16,
    LinkIn = 8,
    SetattrIn = 88,
    OpenIn = 8,
    CreateIn = 16,
    ReleaseIn = 24,
    FlushIn = 24,
    ReadIn = 40,
    WriteIn = 40,
    FsyncIn = 16,
    SetxattrIn = 8,
    SetxattrInMore = 8,
    GetxattrIn = 8,
    AccessIn = 8,
    InterruptIn = 8,
    IoctlIn = 32,
    FallocateIn = 32,
    LseekIn = 24,
    RetrieveIn = 40,
    CopyFileRangeIn = 56,
    SyncfsIn = 8,
    ExtHeader = 8,
    SuppGroups = 4,
);

pub(crate) const EXT_GROUPS: u32 = 32;

pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
pub(crate) const WRITE_CACHE: u32 = 1;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;

/// Bits of `SetattrIn::valid`.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

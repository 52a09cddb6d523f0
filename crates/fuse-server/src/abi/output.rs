//! The fixed parts of answers and notifications.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::sizes;

/// Declares structs that the kernel is sent.
macro_rules! outputs {
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

outputs! {
    Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    EntryOut {
        /// 0 means that there is no such name.
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    CreateOut { entry: EntryOut, open: OpenOut }
    WriteOut { size: u32, padding: u32 }
    Kstatfs {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    GetxattrOut { size: u32, padding: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LseekOut { offset: u64 }
    CopyFileRangeOut { bytes_copied: u64 }
    NotifyInvalInodeOut {
        ino: u64,
        /// A negative value means attributes only.
        off: i64,
        /// 0 or less means to the end.
        len: i64,
    }
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    NotifyDeleteOut { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyRetrieveOut { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
}

sizes!(
    Attr = 88,
    EntryOut = 128,
    AttrOut = 104,
    SxTime = 16,
    Statx = 256,
    StatxOut = 288,
    OpenOut = 16,
    CreateOut = 144,
    WriteOut = 8,
    Kstatfs = 80,
    GetxattrOut = 8,
    IoctlOut = 16,
    LseekOut = 8,
    CopyFileRangeOut = 8,
    NotifyInvalInodeOut = 24,
    NotifyInvalEntryOut = 16,
    NotifyDeleteOut = 24,
    NotifyRetrieveOut = 32,
);

pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

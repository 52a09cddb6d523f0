//! The operations that this server receives: their numbers, and the fixed parts of their requests.

use super::input::*;

/// The first request of a connection (`init`).
pub(crate) const INIT: u32 = 26;

/// Declares operations, each with the struct of its fixed part if it has one.
macro_rules! opcodes {
    ($($number:literal $name:ident $($fixed:ident)?;)+) => {
        $(pub(crate) const $name: u32 = $number;)+

        /// Returns the length of an operation's fixed part, or `None` if it is unknown. `setxattr_ext` is whether that
        /// flag was negotiated.
        #[inline]
        pub(crate) fn fixed_len(operation: u32, setxattr_ext: bool) -> Option<usize> {
            match operation {
                SETXATTR if setxattr_ext => {
                    Some(size_of::<SetxattrIn>() + size_of::<SetxattrInMore>())
                }
                $($name => Some(0 $(+ size_of::<$fixed>())?),)+
                _ => None,
            }
        }
    };
}

opcodes! {
    1 LOOKUP;
    2 FORGET ForgetIn;
    3 GETATTR GetattrIn;
    4 SETATTR SetattrIn;
    5 READLINK;
    6 SYMLINK;
    8 MKNOD MknodIn;
    9 MKDIR MkdirIn;
    10 UNLINK;
    11 RMDIR;
    12 RENAME RenameIn;
    13 LINK LinkIn;
    14 OPEN OpenIn;
    15 READ ReadIn;
    16 WRITE WriteIn;
    17 STATFS;
    18 RELEASE ReleaseIn;
    20 FSYNC FsyncIn;
    21 SETXATTR SetxattrIn;
    22 GETXATTR GetxattrIn;
    23 LISTXATTR GetxattrIn;
    24 REMOVEXATTR;
    25 FLUSH FlushIn;
    27 OPENDIR OpenIn;
    28 READDIR ReadIn;
    29 RELEASEDIR ReleaseIn;
    30 FSYNCDIR FsyncIn;
    34 ACCESS AccessIn;
    35 CREATE CreateIn;
    36 INTERRUPT InterruptIn;
    38 DESTROY;
    39 IOCTL IoctlIn;
    41 NOTIFY_REPLY;
    42 BATCH_FORGET BatchForgetIn;
    43 FALLOCATE FallocateIn;
    44 READDIRPLUS ReadIn;
    45 RENAME2 Rename2In;
    46 LSEEK LseekIn;
    47 COPY_FILE_RANGE CopyFileRangeIn;
    50 SYNCFS SyncfsIn;
    51 TMPFILE CreateIn;
    52 STATX StatxIn;
    53 COPY_FILE_RANGE_64 CopyFileRangeIn;
}

/// The longest fixed part.
pub(crate) const FIXED_MAX: usize = size_of::<SetattrIn>();

/// Returns whether the file system writes the answer itself, into the buffer of the request's payload.
#[inline]
pub(crate) fn fills_buffer(operation: u32) -> bool {
    matches!(
        operation,
        READ | READDIR | READDIRPLUS | READLINK | GETXATTR | LISTXATTR | IOCTL
    )
}

//! One file, directory or other inode with one of its names.

use std::collections::BTreeMap;

use super::Digest;

/// Inode number of the directory that replaces a nested subvolume in a snapshot.
pub(crate) const EMPTY_SUBVOLUME_DIR_INO: u64 = 2;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Since 1970; negative before that.
    pub seconds: i64,
    pub nanoseconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Permission bits, set-id bits and sticky bit, without the file type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    /// Major and minor number; 0 except for device nodes.
    pub rdev: (u32, u32),
    pub size: u64,
    pub ino: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// None if the reader does not know it.
    pub btime: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// There are no contents.
    None,
    File(Digest),
    Symlink(Vec<u8>),
    /// The reader returned an error, which is among the faults.
    Unread,
}

/// The value of an xattr, as a digest if it is long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Bytes(Vec<u8>),
    Long { len_bytes: usize, digest: Digest },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub stat: Stat,
    pub content: Content,
    pub xattrs: BTreeMap<Vec<u8>, Value>,
}

impl Entry {
    /// Returns whether the entry is an empty subvolume directory. The reader synthesizes such a directory, with
    /// arbitrary times.
    pub fn is_empty_subvolume_dir(&self) -> bool {
        self.stat.kind == Kind::Dir && self.stat.ino == EMPTY_SUBVOLUME_DIR_INO
    }
}

const LONG_BYTES: usize = 64;

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        if value.len() <= LONG_BYTES {
            return Value::Bytes(value);
        }
        Value::Long {
            len_bytes: value.len(),
            digest: Digest::of_bytes(&value),
        }
    }
}

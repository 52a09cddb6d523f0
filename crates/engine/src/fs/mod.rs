//! Inodes and names: what POSIX calls look at.

mod attr;
mod dir;
mod file_id;
mod inode;
mod path;
mod symlink;
mod xattr;

pub use attr::{Attr, FileTime};
pub use dir::DirEntry;
pub(crate) use dir::{find_entry, inode_of};
pub use file_id::FileId;
pub(crate) use inode::{Inode, InodeState, InodeTable};

//! Names: directories, their entries, and the operations that create, move and remove them.
//!
//! One file per operation. `entry`, `back_ref` and `root_ref` are shared by them.

mod back_ref;
mod create;
mod dir;
mod entry;
mod inherit;
mod link;
mod new_inode;
mod path;
mod rename;
mod root_ref;
mod symlink;
mod tmpfile;
mod unlink;

use std::sync::Arc;

use ubtrfs_storage::roots::Roots;

pub(crate) use back_ref::has_ref;
pub use dir::DirEntry;
pub(crate) use entry::{NewEntry, check_name, find_entry, find_listed, next_index, search_index};
pub use new_inode::{NewContents, NewInode};
pub use path::{LastName, PathEnd};
pub use rename::RenameMode;
pub(crate) use root_ref::RootPlace;
pub(crate) use unlink::{Rmdir, check_empty};

use crate::file::Files;
use crate::inode::Inodes;

/// The names of a volume.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) roots: Arc<Roots>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Arc<Files>,
}

impl Namespace {
    pub(crate) fn new(files: &Arc<Files>) -> Namespace {
        Namespace {
            roots: Arc::clone(&files.roots),
            inodes: Arc::clone(&files.inodes),
            files: Arc::clone(files),
        }
    }
}

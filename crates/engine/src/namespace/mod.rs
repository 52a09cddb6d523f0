//! Names: directories and their entries, and the calls that make, move and remove them.
//!
//! One file holds one call; `entry`, `back_ref` and `root_ref` hold what they share.

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

pub use dir::DirEntry;
pub(crate) use dir::inode_of;
pub(crate) use entry::{NewEntry, check_name, find_entry, next_index, search_index};
pub use new_inode::NewInode;
pub use path::{LastName, PathEnd};
pub use rename::RenameMode;
pub(crate) use root_ref::RootPlace;
pub(crate) use unlink::check_empty;

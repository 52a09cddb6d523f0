//! Inodes and names: what POSIX calls look at and change.
//!
//! Every operation that changes something goes the same way: it is admitted, locks its inodes (`inode`),
//! drafts its items from what the trees hold (`draft`), enters the running transaction, and lets the draft
//! enter. One file holds one call; `entry`, `back_ref`, `root_ref`, `inode_item` hold what they share.

mod atime;
mod attr;
mod back_ref;
mod create;
mod dir;
mod draft;
mod entry;
mod evict;
mod guard;
mod inherit;
mod inode;
mod inode_flags;
mod inode_item;
mod link;
mod lookup_refs;
mod new_inode;
mod open;
mod orphan;
mod orphan_queue;
mod path;
pub(crate) mod property;
mod rename;
mod root_ref;
mod setattr;
mod symlink;
mod times;
mod tmpfile;
mod unlink;
mod xattr;

pub use atime::AtimePolicy;
pub use attr::Attr;
pub use dir::DirEntry;
pub(crate) use dir::inode_of;
pub(crate) use draft::Draft;
pub(crate) use entry::{NewEntry, check_name, find_entry, next_index, search_index};
pub(crate) use inode::{Inode, InodeState, InodeTable, Locked};
#[cfg(test)]
pub(crate) use inode_item::inode_key;
pub(crate) use inode_item::{kind_of, known_inode, note_change, note_times, put_inode};
pub use lookup_refs::LookupRefs;
pub use new_inode::NewInode;
pub use open::OpenFile;
pub(crate) use orphan_queue::OrphanQueue;
pub use path::{LastName, PathEnd};
pub use rename::RenameMode;
pub(crate) use root_ref::RootPlace;
pub use setattr::{SetAttr, SetTime};
pub(crate) use unlink::check_empty;
pub use xattr::XattrMode;

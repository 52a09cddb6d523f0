//! Inodes: their items, attributes and times, the data that is buffered for them, and their end.
//!
//! Every operation that changes something goes the same way: it reserves what it may need, locks its inodes (`table`),
//! drafts its items from what the trees hold (`draft`), enters the running transaction, and lets the draft enter.
//!
//! Not here: names (`namespace`), and the data of files once it leaves the buffer (`file`).

mod atime;
mod attr;
mod buffer;
mod dirty;
mod draft;
mod evict;
mod guard;
mod inode_flags;
mod inode_item;
mod lookup_refs;
mod name_items;
mod open;
mod options;
mod orphan;
mod orphan_queue;
mod pieces;
mod promise;
pub(crate) mod property;
mod setattr;
mod settings;
mod table;
mod times;
mod unstored;
mod windows;
mod writeback_errors;
mod xattr;

pub use atime::AtimePolicy;
pub use attr::Attr;
pub(crate) use buffer::WriteBuffer;
pub(crate) use dirty::DirtyFiles;
pub(crate) use draft::{Bytes, Draft, Stamps};
pub(crate) use evict::{Doomed, EVICTED_AT_ONCE, all_items};
pub(crate) use guard::{may_add, may_remove, may_write, must_be_dir, refuse_guarded};
#[cfg(test)]
pub(crate) use inode_item::inode_key;
pub(crate) use inode_item::{
    EntryChange, kind_of, known_inode, note_change, note_entry, note_times, put_inode,
};
pub use lookup_refs::LookupRefs;
pub(crate) use name_items::{MAX_NAME_BYTES, TRANSID_AT, has_room};
pub use open::OpenFile;
pub use options::Compress;
pub(crate) use options::DataOptions;
pub(crate) use orphan_queue::OrphanQueue;
pub(crate) use pieces::{Pieces, WINDOW_BYTES};
pub(crate) use promise::{MAX_EXTENT_BYTES, Promise, Wanted};
pub use setattr::{SetAttr, SetTime};
pub(crate) use settings::Settings;
pub(crate) use table::{FileExtentsState, Inherited, Inode, InodeState, InodeTable, Locked};
pub(crate) use writeback_errors::{SeenErrors, WritebackErrors};
pub use xattr::XattrMode;
pub(crate) use xattr::find_xattr;

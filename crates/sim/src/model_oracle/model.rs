//! A simple file system in memory that defines the expected results.
//!
//! `apply` executes an operation of a script, or fails like the kernel's btrfs; `compare` compares the model with a
//! reader's manifest. A clone is cheap and shares all unchanged data. So a test can keep a model for each operation
//! of a history.
//!
//! The model is verified against the kernel: `script::KernelTarget` runs the same operations on a mount.
//!
//! - MODEL-1: a failed operation changes nothing.
//! - MODEL-2: results that are undefined or accidental in the kernel are `OpError::OutOfScope`, and never compared.
//!
//! Not here: space (the model is never full; the runner accepts ENOSPC from a target), and times that were not set.
//! Inheritance by set-group-id directories and default ACLs is not here either.

mod attributes;
mod compression;
mod content;
mod data;
mod files;
mod inode;
mod lookup;
mod names;
mod open_files;
mod permission;
mod rename;
mod shown;
mod subvolume;
#[cfg(test)]
mod tests;
mod wander;

pub(crate) use compression::COMPRESSION;
pub(crate) use files::InodeKey;
pub(crate) use shown::compare;

use std::collections::BTreeMap;

use crate::vocabulary::{Op, OpError, Outcome, Slot};

pub use wander::Wanted;

use inode::{Inode, InodeId, SubvolumeId};
use subvolume::Subvolume;

type Map<K, V> = rpds::RedBlackTreeMapSync<K, V>;
type OpResult = Result<Outcome, OpError>;

/// The top-level subvolume; its root is the root of all paths.
const TOP: SubvolumeId = SubvolumeId(5);

/// The limits that depend on the volume's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Granularity of shared extents.
    pub sector_bytes: u64,
    /// Maximum total length of name and value of an xattr.
    pub xattr_bytes: usize,
    /// The default compression algorithm.
    pub algorithm: &'static str,
}

impl Default for Limits {
    /// Returns the limits for nodes of 16 KiB and sectors of 4 KiB.
    fn default() -> Limits {
        Limits::of_nodesize(16 << 10)
    }
}

impl Limits {
    pub fn of_nodesize(nodesize: usize) -> Limits {
        // The space of a leaf with one item and one entry.
        const HEADER: usize = 101;
        const ITEM: usize = 25;
        const ENTRY: usize = 30;
        Limits {
            sector_bytes: 4096,
            xattr_bytes: nodesize - HEADER - ITEM - ENTRY,
            algorithm: "zlib",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ModelFs {
    limits: Limits,
    subvolumes: Map<SubvolumeId, Subvolume>,
    next_subvolume: u64,
    open: BTreeMap<Slot, InodeId>,
    /// The subvolume that is mounted by default.
    default: SubvolumeId,
}

impl Default for ModelFs {
    fn default() -> ModelFs {
        ModelFs::new(Limits::default())
    }
}

impl ModelFs {
    /// Creates a volume as from mkfs: an empty root with mode 0755 owned by root.
    pub fn new(limits: Limits) -> ModelFs {
        ModelFs {
            limits,
            subvolumes: Map::new_sync().insert(TOP, Subvolume::new(None)),
            next_subvolume: 256,
            open: BTreeMap::new(),
            default: TOP,
        }
    }

    /// Executes the operation, or fails and changes nothing.
    pub fn apply(&mut self, op: &Op) -> OpResult {
        match op {
            Op::Create { path, mode } => self.create(path, *mode),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Symlink { path, target } => self.symlink(path, target),
            Op::Mknod { path, node, mode } => self.mknod(path, *node, *mode),
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { path, slot } => self.open(path, *slot),
            Op::Close { slot } => self.close(*slot),
            Op::Tmpfile { dir, mode, slot } => self.tmpfile(dir, *mode, *slot),
            Op::LinkOpen { slot, to } => self.link_open(*slot, to),
            Op::Write { at, offset, data } => self.write(at, *offset, data),
            Op::Append { at, data } => self.append(at, data),
            Op::Truncate { at, size } => self.truncate(at, *size),
            Op::Fallocate {
                at,
                how,
                offset,
                len_bytes,
            } => self.fallocate(at, *how, *offset, *len_bytes),
            Op::Clone {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.clone_range((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::CopyRange {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.copy_range((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::Dedupe {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.dedupe((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::SetXattr {
                path,
                name,
                value,
                how,
            } => self.set_xattr(path, name, value, *how),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Op::Chmod { path, mode } => self.chmod(path, *mode),
            Op::Chown { path, uid, gid } => self.chown(path, *uid, *gid),
            Op::SetTimes { path, atime, mtime } => self.set_times(path, *atime, *mtime),
            Op::SetFlags { path, flags } => self.set_flags(path, *flags),
            Op::CreateSubvolume { path } => self.create_subvolume(path),
            Op::Snapshot {
                from,
                to,
                read_only,
            } => self.snapshot(from, to, *read_only),
            Op::DeleteSubvolume { path } => self.delete_subvolume(path),
            Op::SetReadOnly { path, read_only } => self.set_read_only(path, *read_only),
            Op::SetDefault { path } => self.set_default(path),
            Op::SetReceived { path, number } => self.set_received(path, *number),
            Op::GetReceived { path } => self.get_received(path),
            Op::Read {
                at,
                offset,
                len_bytes,
            } => self.read(at, *offset, *len_bytes),
            Op::List { path } => self.list(path),
            Op::Stat { path } => self.stat(path),
            Op::GetXattr { path, name } => self.get_xattr(path, name),
            Op::GetFlags { path } => self.get_flags(path),
            Op::Fsync { at } => self.fsync(at),
            Op::Sync | Op::Commit | Op::DropCaches => Ok(Outcome::Done),
            Op::Remount => self.close_all(),
        }
    }

    fn subvolume(&self, id: SubvolumeId) -> &Subvolume {
        self.subvolumes
            .get(&id)
            .expect("ids of subvolumes that exist")
    }

    fn subvolume_mut(&mut self, id: SubvolumeId) -> &mut Subvolume {
        let found = self.subvolumes.get_mut(&id);
        found.expect("ids of subvolumes that exist")
    }

    fn inode(&self, id: InodeId) -> &Inode {
        let found = self.subvolume(id.subvolume).inodes.get(&id.ino);
        found.expect("ids of inodes that exist")
    }

    fn inode_mut(&mut self, id: InodeId) -> &mut Inode {
        let found = self.subvolume_mut(id.subvolume).inodes.get_mut(&id.ino);
        found.expect("ids of inodes that exist")
    }
}

//! Files that the kernel has forgotten and a program asks for by a handle: name_to_handle_at(2), an NFS server.
//!
//! A handle holds the number and the generation of a node. The kernel looks up `.` in it to learn of the node again,
//! and `..` to connect a directory with the root of the mount. No other lookup has these names.
//!
//! overlayfs looks up a file in the same way, for the origin of a file that was copied up. A file that is found so is
//! stale to it from then on, so it is found only by callers that open it (`caller::finds_by_handle`). The kernel
//! connects directories by ordinary lookups, and each caller finds those.
//!
//! Nodes whose number says nothing (`nodes`) cannot be found again: their handles are stale once they are forgotten.

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::InodeNr;
use ubtrfs_fuse_server::request::{Context, Entry, Errno, FileKind, Lookup, NodeId, Result};

use super::nodes::Listed;
use super::source::{FileId, Inode, Source};
use super::{Adapter, FOREVER, Node};

/// How deep subvolumes may be nested in each other. A crafted volume may nest them in a circle.
const MAX_NESTING: usize = 4096;

impl<S: Source> Adapter<S> {
    /// Looks up the node itself.
    pub(super) fn find_itself(&self, context: &Context, node: &Node) -> Result<Lookup> {
        let is_below = node.id.root == self.root.root || self.is_below_root(node.id)?;
        if !is_below || node.listed.is_some() {
            return Err(Errno::STALE);
        }
        let inode = self.existing(node.id)?;
        if inode.attr.kind != FileKind::Directory {
            // The caller may not have gone to sleep yet.
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
            if !(self.finds_by_handle)(context.pid) {
                return Err(Errno::STALE);
            }
        }
        let number = self.look_up_number(node, b".", node.id, inode.attr.kind);
        Ok(Lookup::Found(self.entry_of(number, &inode)))
    }

    /// Looks up the directory that holds a directory.
    pub(super) fn find_parent(&self, node: &Node) -> Result<Lookup> {
        let parent = match &node.listed {
            Some(Listed::EmptySubvolumeDir { dir, .. }) => *dir,
            _ if node.id == self.root => self.root,
            _ => self.source.parent(node.id)?,
        };
        let inode = self.existing(parent)?;
        if parent == self.root {
            return Ok(Lookup::Found(Entry {
                node: NodeId::ROOT,
                // The kernel knows its root by this one.
                generation: 0,
                attributes: Self::attributes_of(self.node(NodeId::ROOT)?.number, &inode),
                ttl: FOREVER,
            }));
        }
        let number = self.look_up_number(node, b"..", parent, inode.attr.kind);
        Ok(Lookup::Found(self.entry_of(number, &inode)))
    }

    /// Returns the inode, if it has a name. One without a name may be on its way out.
    fn existing(&self, id: FileId) -> Result<Inode> {
        match self.source.inode(id) {
            Ok(inode) if inode.attr.nlink > 0 => Ok(inode),
            Ok(_) | Err(Errno::UCLEAN | Errno::NOENT) => Err(Errno::STALE),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the subvolume of a file is reached from the root of the mount.
    fn is_below_root(&self, id: FileId) -> Result<bool> {
        let mut at = id;
        for _ in 0..MAX_NESTING {
            let top = FileId {
                root: at.root,
                ino: InodeNr::FIRST_FREE,
            };
            let above = match self.source.parent(top) {
                Err(Errno::WOULD_BLOCK) => return Err(Errno::WOULD_BLOCK),
                // No such subvolume, or none that can be read.
                Err(_) => return Ok(false),
                Ok(above) => above,
            };
            if above.root == self.root.root {
                return Ok(true);
            }
            // The top level holds itself.
            if above.root == at.root {
                return Ok(false);
            }
            at = above;
        }
        Ok(false)
    }
}

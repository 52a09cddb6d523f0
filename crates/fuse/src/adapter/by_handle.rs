//! Lookup of forgotten files by file handle, for name_to_handle_at(2) and NFS servers.
//!
//! A handle contains the number and the generation of a node. The kernel looks up `.` in the node to load it again, and
//! `..` to connect a directory with the root of the mount. No other lookup has these names.
//!
//! overlayfs uses the same lookup for the origin of a copied-up file, and then treats the found file as stale. So only
//! callers that open files by handle find them (`caller::finds_by_handle`). The kernel connects directories by ordinary
//! lookups, which succeed for every caller.
//!
//! Nodes whose number encodes no file (`nodes`) cannot be found again: their handles are stale once they are forgotten.

use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::InodeNr;
use ubtrfs_fuse_server::request::{Answer, Context, Entry, Errno, FileKind, NodeId, Result};

use super::nodes::Listed;
use super::source::{FileId, Inode, Source};
use super::{Adapter, FOREVER, Node};

/// The maximum nesting depth of subvolumes. A crafted volume may nest them in a circle.
const MAX_NESTING: usize = 4096;

impl<S: Source> Adapter<S> {
    /// Looks up the node itself.
    pub(super) fn lookup_dot(&self, context: &Context, node: &Node) -> Result<Answer> {
        let is_below = node.id.root == self.root.root || self.is_below_root(node.id)?;
        if !is_below || node.listed.is_some() {
            return Err(Errno::STALE);
        }
        let inode = self.existing(node.id)?;
        if inode.attr.kind != FileKind::Directory {
            // The caller may not be asleep in its system call yet.
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
            if !(self.finds_by_handle)(context.pid) {
                return Err(Errno::STALE);
            }
        }
        let number = self.look_up_number(node, b".", node.id, inode.attr.kind);
        Ok(Answer::Entry(self.entry_of(number, &inode)))
    }

    /// Looks up the parent of a directory.
    pub(super) fn lookup_dot_dot(&self, node: &Node) -> Result<Answer> {
        let parent = match &node.listed {
            Some(Listed::EmptySubvolumeDir { dir, .. }) => *dir,
            _ if node.id == self.root => self.root,
            _ => self.source.parent(node.id)?,
        };
        let inode = self.existing(parent)?;
        if parent == self.root {
            return Ok(Answer::Entry(Entry {
                node: NodeId::ROOT,
                // The generation that the kernel uses for its root.
                generation: 0,
                attributes: Self::attributes_of(self.node(NodeId::ROOT)?.number, &inode),
                ttl: FOREVER,
            }));
        }
        let number = self.look_up_number(node, b"..", parent, inode.attr.kind);
        Ok(Answer::Entry(self.entry_of(number, &inode)))
    }

    /// Returns the inode, if it has a name. An inode without a name may be about to be evicted.
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
                // The subvolume does not exist, or cannot be read.
                Err(_) => return Ok(false),
                Ok(above) => above,
            };
            if above.root == self.root.root {
                return Ok(true);
            }
            // The top level is its own parent.
            if above.root == at.root {
                return Ok(false);
            }
            at = above;
        }
        Ok(false)
    }
}

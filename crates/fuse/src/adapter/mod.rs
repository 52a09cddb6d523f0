//! A btrfs volume as the file system of a FUSE connection, and the only place that picks an errno.
//!
//! One subvolume is the root of the mount; those below it are directories in it. Nothing changes while
//! the volume is mounted read-only, so the kernel may believe every answer for good: lifetimes do not
//! end, opens are elided, and cached contents stay from one open to the next.
//!
//! Invariants
//! - FUSE-1: the node id of every file but the root is the inode number shown (`number`).
//! - FUSE-2: memory grows with the nodes that the kernel holds of `nodes`' kinds, not with files seen.
//! - FUSE-3: a file is the root of the mount only as node 1; an entry that leads to it again would make
//!   the tree endless (`ELOOP`).

mod attributes;
mod flags;
mod listing;
mod nodes;
mod number;
mod source;
mod volume;
mod xattr;

use std::sync::OnceLock;
use std::time::Duration;

use self::nodes::{Listed, NodeTable};
use self::number::{Meaning, Numbering};
use self::source::{FileId, Inode, Source};
use crate::request::{
    Attributes, Context, DirPlusSink, DirSink, Entry, Errno, FileSystem, Handle, Lookup, NodeId,
    OpenFlags, Opened, Result, SeekFor, StatFs, Wishes,
};

/// More than a century, and within what the kernel's clock can add.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
const NAME_MAX: usize = 255;

/// A volume being served.
#[derive(Debug)]
pub(crate) struct Adapter<S> {
    source: S,
    root: FileId,
    numbering: Numbering,
    nodes: NodeTable,
    /// Asked for once: it takes a walk over all block groups.
    statfs: OnceLock<StatFs>,
    wishes: Wishes,
}

/// A node that the kernel named, resolved.
#[derive(Debug)]
struct Node {
    id: FileId,
    /// The inode number shown.
    number: u64,
    listed: Option<Listed>,
}

impl Node {
    /// Whether this is a directory in place of a subvolume that is not there.
    fn is_stub(&self) -> bool {
        matches!(self.listed, Some(Listed::Stub { .. }))
    }
}

impl<S: Source> Adapter<S> {
    /// Serves the subvolume whose root directory is `root`, and what is below it.
    pub(crate) fn new(source: S, root: FileId, wishes: Wishes) -> Self {
        Self {
            source,
            root,
            numbering: Numbering::new(root.root),
            nodes: NodeTable::default(),
            statfs: OnceLock::new(),
            wishes,
        }
    }

    fn node(&self, node: NodeId) -> Result<Node> {
        if node == NodeId::ROOT {
            return Ok(Node {
                id: self.root,
                number: self.numbering.number(self.root).unwrap_or(node.0),
                listed: None,
            });
        }
        let listed = match self.numbering.meaning(node.0) {
            Meaning::File(id) => {
                return Ok(Node {
                    id,
                    number: node.0,
                    listed: None,
                });
            }
            Meaning::Listed => self.nodes.get(node.0).ok_or(Errno::STALE)?,
            Meaning::Nothing => return Err(Errno::STALE),
        };
        Ok(Node {
            id: listed.file(),
            number: node.0,
            listed: Some(listed),
        })
    }

    fn listed(dir: &Node, name: &[u8], child: FileId) -> Listed {
        if child.is_stub() {
            Listed::Stub {
                stub: child,
                dir: dir.id,
                name: name.into(),
            }
        } else {
            Listed::File(child)
        }
    }

    /// The number of `name` in `dir`, to be shown.
    fn shown_number(&self, dir: &Node, name: &[u8], child: FileId) -> u64 {
        self.numbering
            .number(child)
            .unwrap_or_else(|| Self::listed(dir, name, child).usual_number())
    }

    /// The number of `name` in `dir`, as the node of one more lookup.
    fn look_up_number(&self, dir: &Node, name: &[u8], child: FileId) -> u64 {
        self.numbering
            .number(child)
            .unwrap_or_else(|| self.nodes.look_up(Self::listed(dir, name, child)))
    }

    fn forget_number(&self, number: u64, lookups: u64) {
        if self.numbering.meaning(number) == Meaning::Listed {
            self.nodes.forget(number, lookups);
        }
    }

    fn reachable(&self, child: FileId) -> Result<()> {
        if child == self.root {
            return Err(Errno::LOOP);
        }
        Ok(())
    }

    fn entry_of(&self, number: u64, inode: &Inode) -> Entry {
        Entry {
            node: NodeId(number),
            generation: inode.generation,
            attributes: Self::attributes_of(number, inode),
            ttl: FOREVER,
        }
    }

    fn attributes_of(number: u64, inode: &Inode) -> Attributes {
        let mut attr = inode.attr;
        attr.ino = number;
        Attributes { attr, ttl: FOREVER }
    }
}

impl<S: Source> FileSystem for Adapter<S> {
    fn wishes(&self) -> Wishes {
        self.wishes
    }

    fn lookup(&self, _context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let dir = self.node(dir)?;
        let child = if dir.is_stub() {
            None
        } else {
            self.source.lookup(dir.id, name)?
        };
        let Some(child) = child else {
            return Ok(Lookup::Absent { ttl: FOREVER });
        };
        self.reachable(child)?;
        let inode = self.source.inode(child)?;
        let number = self.look_up_number(&dir, name, child);
        Ok(Lookup::Found(self.entry_of(number, &inode)))
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.forget_number(node.0, lookups);
    }

    fn getattr(&self, _context: &Context, node: NodeId) -> Result<Attributes> {
        let node = self.node(node)?;
        let inode = self.source.inode(node.id)?;
        Ok(Self::attributes_of(node.number, &inode))
    }

    fn readlink(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        let target = self.source.readlink(self.node(node)?.id)?;
        out.get_mut(..target.len())
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(&target);
        Ok(target.len())
    }

    fn open(&self, _context: &Context, _node: NodeId, _flags: OpenFlags) -> Result<Opened> {
        Ok(Opened::Elided)
    }

    fn read(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        self.source.read(self.node(node)?.id, offset, out)
    }

    fn release(&self, _context: &Context, _node: NodeId, _handle: Handle) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _context: &Context, _node: NodeId) -> Result<Opened> {
        Ok(Opened::Elided)
    }

    fn readdir(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        self.list(node, offset, sink)
    }

    fn readdirplus(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        self.list_plus(node, offset, sink)
    }

    fn releasedir(&self, _context: &Context, _node: NodeId, _handle: Handle) -> Result<()> {
        Ok(())
    }

    fn getxattr(
        &self,
        _context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        if !xattr::namespace_exists(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.node(node)?;
        if node.is_stub() {
            return Err(Errno::NODATA);
        }
        let value = self.source.xattr(node.id, name)?.ok_or(Errno::NODATA)?;
        xattr::fill(out, &value)
    }

    fn listxattr(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        let node = self.node(node)?;
        if node.is_stub() {
            return Ok(0);
        }
        let names = self.source.xattr_names(node.id)?;
        xattr::fill_list(out, names.iter().map(Vec::as_slice))
    }

    fn statfs(&self, _context: &Context, _node: NodeId) -> Result<StatFs> {
        if let Some(known) = self.statfs.get() {
            return Ok(*known);
        }
        let found = self.source.statfs()?;
        Ok(*self.statfs.get_or_init(|| found))
    }

    fn access(&self, _context: &Context, _node: NodeId, _mask: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn lseek(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        let id = self.node(node)?.id;
        let found = match what {
            SeekFor::Data => self.source.seek_data(id, offset)?,
            SeekFor::Hole => self.source.seek_hole(id, offset)?,
        };
        found.ok_or(Errno::NXIO)
    }

    fn ioctl(
        &self,
        _context: &Context,
        node: NodeId,
        command: u32,
        _input: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let inode = || self.source.inode(self.node(node)?.id);
        match command {
            flags::GETFLAGS | flags::GETFLAGS_32 => {
                answer(out, &flags::fs_flags(inode()?.flags).to_ne_bytes())
            }
            flags::GETVERSION | flags::GETVERSION_32 => {
                // The low half, as everybody shows it.
                answer(out, &(inode()?.generation as u32).to_ne_bytes())
            }
            flags::FSGETXATTR => answer(out, &flags::fsxattr(inode()?.flags)),
            _ => Err(Errno::NOTTY),
        }
    }
}

/// Puts an ioctl's answer in.
fn answer(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
    out.get_mut(..bytes.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;

//! The members of an archive as a tree of names, whatever order they come in.
//!
//! As when an archive is unpacked, a later member takes the place of an earlier one with its path, and
//! directories that have no member of their own are made. A hard link may come before what it links to.
//!
//! Memory: about 150 bytes and its name for each member.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_format::item::InodeFlags;

use crate::archive::ArchiveError;
use crate::mkfs::fill::marks::Marks;
use crate::mkfs::fill::source::{Attributes, Times};

#[cfg(test)]
mod tests;

/// By its number.
pub(super) type NodeId = u32;

pub(super) const ROOT: NodeId = 0;
const NONE: NodeId = NodeId::MAX;
const MODE_OF_MADE: u32 = 0o040_755;

/// Where what belongs to a node was put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Nothing, or not yet: directories, empty files, devices.
    Nothing,
    /// Data in the archive itself.
    InArchive { at: u64 },
    /// A link's target in the log.
    Target { at: u64, len: u32 },
    /// Inline contents in the log.
    Inline { at: u64 },
    /// Extents, by the number of the first.
    Placed {
        first: u64,
        count: u32,
        is_incompressible: bool,
    },
}

#[derive(Debug)]
pub(super) struct Node {
    parent: NodeId,
    name: (u64, u16),
    /// Of nodes whose paths have the same hash.
    next_alike: NodeId,
    /// Another took its place.
    is_replaced: bool,
    /// The node that it is another name of.
    pub(super) link: Option<NodeId>,
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    times: Times,
    flags: InodeFlags,
    /// In the log, if it has any.
    pub(super) xattrs_at: Option<u64>,
    /// Where the map of its parts is in the log, and how many there are.
    pub(super) parts: Option<(u64, u32)>,
    pub(super) size: u64,
    pub(super) stored: Stored,
}

impl Node {
    pub(super) fn is_dir(&self) -> bool {
        self.link.is_none() && self.mode & 0o170_000 == 0o040_000
    }

    pub(super) fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    pub(super) fn flags(&self) -> InodeFlags {
        self.flags
    }

    /// All but the extended attributes.
    pub(super) fn attributes(&self) -> Attributes {
        Attributes {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev.into(),
            times: self.times,
            xattrs: Vec::new(),
            flags: self.flags,
        }
    }
}

#[derive(Debug)]
pub(super) struct Names {
    nodes: Vec<Node>,
    bytes: Vec<u8>,
    /// The last node with a hash of its parent and name.
    by_hash: HashMap<u64, NodeId>,
    marks: Marks,
    /// Subvolumes, by their numbers among those asked for.
    subvolumes: HashMap<NodeId, usize>,
    /// Links to what had not come yet.
    pending: Vec<(NodeId, Vec<u8>)>,
    /// Of directories that are made.
    made: Times,
}

impl Names {
    pub(super) fn new(marks: Marks, made: Times) -> Names {
        let mut names = Names {
            nodes: Vec::new(),
            bytes: Vec::new(),
            by_hash: HashMap::new(),
            marks,
            subvolumes: HashMap::new(),
            pending: Vec::new(),
            made,
        };
        let flags = names.marks.meet(b"", true, InodeFlags::empty()).flags;
        let root = names.made_dir(NONE, (0, 0), flags);
        names.nodes.push(root);
        names
    }

    fn made_dir(&self, parent: NodeId, name: (u64, u16), flags: InodeFlags) -> Node {
        Node {
            parent,
            name,
            next_alike: NONE,
            is_replaced: false,
            link: None,
            mode: MODE_OF_MADE,
            uid: 0,
            gid: 0,
            rdev: 0,
            times: self.made,
            flags,
            xattrs_at: None,
            parts: None,
            size: 0,
            stored: Stored::Nothing,
        }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub(super) fn name(&self, id: NodeId) -> &[u8] {
        let (at, len) = self.node(id).name;
        &self.bytes[at as usize..][..len.into()]
    }

    pub(super) fn subvolume(&self, id: NodeId) -> Option<usize> {
        self.subvolumes.get(&id).copied()
    }

    pub(super) fn unmet(&self) -> Option<PathBuf> {
        self.marks.unmet()
    }

    pub(super) fn path(&self, id: NodeId) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path_bytes(id)))
    }

    fn path_bytes(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT && at != NONE {
            names.push(self.name(at));
            at = self.node(at).parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn hash(parent: NodeId, name: &[u8]) -> u64 {
        // One that is the same in each run; nothing depends on it but where things are looked for.
        let mut hasher = DefaultHasher::new();
        (parent, name).hash(&mut hasher);
        hasher.finish()
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let mut at = *self.by_hash.get(&Self::hash(parent, name))?;
        while at != NONE {
            let node = self.node(at);
            if node.parent == parent && !node.is_replaced && self.name(at) == name {
                return Some(at);
            }
            at = node.next_alike;
        }
        None
    }

    /// Adds a directory that may become something else as long as nothing is in it.
    fn add(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, ArchiveError> {
        let id = self.nodes.len() as NodeId;
        if id >= NONE - 1 {
            return Err(ArchiveError::TooMany { max: NONE - 1 });
        }
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(name);
        let mut node = self.made_dir(parent, (at, name.len() as u16), InodeFlags::empty());
        let alike = self.by_hash.insert(Self::hash(parent, name), id);
        node.next_alike = alike.unwrap_or(NONE);
        self.nodes.push(node);
        Ok(id)
    }

    /// Meets what was asked for at the node's path.
    fn mark(&mut self, id: NodeId) {
        let node = self.node(id);
        let (is_dir, parent) = (node.is_dir(), node.parent);
        let inherited = self.node(parent).flags;
        let marked = match self.marks.are_none() {
            true => Default::default(),
            false => {
                let path = self.path_bytes(id);
                self.marks.meet(&path, is_dir, inherited)
            }
        };
        self.node_mut(id).flags = marked.flags;
        match marked.subvolume {
            Some(subvolume) => self.subvolumes.insert(id, subvolume),
            None => self.subvolumes.remove(&id),
        };
    }

    /// Takes a member's place in the tree; the node is new, or the directory that was there.
    pub(super) fn place(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        is_link: bool,
    ) -> Result<NodeId, ArchiveError> {
        let shown = || PathBuf::from(OsStr::from_bytes(path));
        let names = split(path).ok_or_else(|| ArchiveError::Outside { path: shown() })?;
        let is_dir = attributes.mode & 0o170_000 == 0o040_000 && !is_link;
        let Some((last, on_the_way)) = names.split_last() else {
            if !is_dir {
                return Err(ArchiveError::ReplacesDirectory { path: shown() });
            }
            self.set(ROOT, attributes);
            return Ok(ROOT);
        };
        let mut dir = ROOT;
        for name in on_the_way {
            check_name(name, path)?;
            dir = match self.find(dir, name) {
                Some(id) if self.node(id).is_dir() => id,
                Some(_) => return Err(ArchiveError::NotADirectory { path: shown() }),
                None => {
                    let id = self.add(dir, name)?;
                    self.mark(id);
                    id
                }
            };
        }
        check_name(last, path)?;
        let id = match self.find(dir, last) {
            Some(id) if self.node(id).is_dir() && is_dir => id,
            Some(id) => {
                if self.node(id).is_dir() && self.has_children(id) {
                    return Err(ArchiveError::ReplacesDirectory { path: shown() });
                }
                self.node_mut(id).is_replaced = true;
                self.add(dir, last)?
            }
            None => self.add(dir, last)?,
        };
        self.set(id, attributes);
        self.mark(id);
        Ok(id)
    }

    /// Seldom asked: only where a directory would be replaced.
    fn has_children(&self, dir: NodeId) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.parent == dir && !node.is_replaced)
    }

    fn set(&mut self, id: NodeId, attributes: &Attributes) {
        let node = self.node_mut(id);
        node.mode = attributes.mode;
        node.uid = attributes.uid;
        node.gid = attributes.gid;
        node.rdev = attributes.rdev as u32;
        node.times = attributes.times;
        node.xattrs_at = None;
    }

    /// Takes a hard link's place in the tree: another name of what has the path `target`, now or later.
    pub(super) fn link(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        target: &[u8],
    ) -> Result<(), ArchiveError> {
        let inode = |names: &Names, path| Some(names.inode(names.look_up(path)?));
        let found = inode(self, target).filter(|&inode| !self.node(inode).is_dir());
        if found.is_some() && inode(self, path) == found {
            return Ok(());
        }
        let id = self.place(path, attributes, true)?;
        // What waits is a link to itself, which is no directory that something could be in.
        self.node_mut(id).link = Some(found.unwrap_or(id));
        if found.is_none() {
            self.pending.push((id, target.to_vec()));
        }
        Ok(())
    }

    /// The node that holds what a node is a name of.
    pub(super) fn inode(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while let Some(link) = self.node(at).link.filter(|&link| link != at) {
            at = link;
        }
        at
    }

    fn look_up(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = ROOT;
        for name in split(path)? {
            at = self.find(at, name)?;
        }
        Some(at)
    }

    /// Finds what links were waiting for; nothing comes any more.
    pub(super) fn finish(&mut self) -> Result<(), ArchiveError> {
        for (id, target) in std::mem::take(&mut self.pending) {
            if self.node(id).is_replaced {
                continue;
            }
            let inode = self.look_up(&target).map(|found| self.inode(found));
            let inode = inode.filter(|&inode| {
                let node = self.node(inode);
                // What waits itself leads nowhere.
                !node.is_dir() && node.link.is_none()
            });
            let Some(inode) = inode else {
                return Err(ArchiveError::LinkTarget {
                    path: self.path(id),
                    target: PathBuf::from(OsStr::from_bytes(&target)),
                });
            };
            self.node_mut(id).link = Some(inode);
        }
        Ok(())
    }

    /// Every node that has a name, by directory and then by name: the contents of a directory lie together.
    pub(super) fn sorted(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = (1..self.nodes.len() as NodeId)
            .filter(|&id| !self.node(id).is_replaced)
            .collect();
        ids.sort_unstable_by(|&a, &b| {
            let dirs = self.node(a).parent.cmp(&self.node(b).parent);
            dirs.then_with(|| self.name(a).cmp(self.name(b)))
        });
        ids
    }

    pub(super) fn parent(&self, id: NodeId) -> NodeId {
        self.node(id).parent
    }
}

const MAX_NAME_BYTES: usize = 255;

fn check_name(name: &[u8], path: &[u8]) -> Result<(), ArchiveError> {
    if name.len() > MAX_NAME_BYTES || name.contains(&0) {
        return Err(ArchiveError::Name {
            path: PathBuf::from(OsStr::from_bytes(path)),
        });
    }
    Ok(())
}

/// The names of a path. None if it leads out.
fn split(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names
        .filter(|name| !name.is_empty() && *name != b".")
        .collect();
    (!names.contains(&&b".."[..])).then_some(names)
}

//! The tree of names of an archive's members, which may have any order.
//!
//! A later member replaces an earlier one with the same path, as in unpacking. Missing parent directories are added. A
//! hard link may precede its target.
//!
//! Memory: parts of the budget (`scratch`), regardless of the number of members.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_format::item::{FileKind, InodeFlags, PreservedAttributes, Times};
use ubtrfs_format::limits;
use ubtrfs_spill::{Log, Paged, Paging, Sorted, Sorter};

use super::named::Named;
use super::node::{Children, NONE, Node, NodeId};
use crate::archive::ArchiveError;
use crate::error::MkfsError;
use crate::fill::error::FillError;
use crate::fill::hash_table::HashTable;
use crate::fill::marks::Marks;
use crate::fill::scratch::Scratch;
use crate::fill::source::Attributes;

#[cfg(test)]
mod tests;

pub(super) const ROOT: NodeId = 0;
const MODE_OF_MADE: u32 = 0o040_755;
const PAGE_NODES: usize = 32;
const PAGE_BYTES: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum NamesError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Scratch(#[from] io::Error),
}

impl From<NamesError> for FillError {
    fn from(error: NamesError) -> FillError {
        match error {
            NamesError::Archive(error) => error.into(),
            NamesError::Scratch(error) => MkfsError::Scratch(error).into(),
        }
    }
}

type Result<T> = std::result::Result<T, NamesError>;

#[derive(Debug)]
pub(super) struct Names {
    nodes: Paged<Node>,
    bytes: Paged<u8>,
    /// By parent and name; None after all members are read.
    by_name: Option<HashTable>,
    /// The directory of the last path. It is not empty, so it stays a directory.
    last_dir: (Vec<u8>, NodeId),
    marks: Marks,
    /// Subvolumes, by their index among the requests.
    subvolumes: HashMap<NodeId, usize>,
    /// Links with an unresolved target: node, length and path of the target.
    pending: Log,
    has_links: bool,
    /// The times of added parent directories.
    made: Times,
    scratch: Scratch,
}

impl Names {
    pub(super) fn new(marks: Marks, made: Times, scratch: &Scratch) -> Result<Names> {
        let memory = scratch.memory_bytes;
        let paging = |memory_bytes| Paging {
            page_records: PAGE_NODES,
            memory_bytes,
        };
        let bytes_paging = Paging {
            page_records: PAGE_BYTES,
            memory_bytes: memory / 16,
        };
        let mut names = Names {
            nodes: Paged::new(&scratch.dir, paging(memory / 8 * 3)),
            bytes: Paged::new(&scratch.dir, bytes_paging),
            by_name: Some(HashTable::new(&scratch.dir, memory / 8)?),
            last_dir: (Vec::new(), ROOT),
            marks,
            subvolumes: HashMap::new(),
            pending: Log::new(&scratch.dir, PAGE_BYTES),
            has_links: false,
            made,
            scratch: scratch.clone(),
        };
        let flags = names.marks.visit(b"", true, InodeFlags::empty()).flags;
        let root = names.made_dir(NONE, (0, 0), flags);
        names.nodes.push(root)?;
        Ok(names)
    }

    fn made_dir(&self, parent: NodeId, name: (u64, u16), flags: InodeFlags) -> Node {
        Node {
            file: PreservedAttributes {
                mode: MODE_OF_MADE,
                times: self.made,
                ..PreservedAttributes::default()
            },
            flags,
            ..Node::new(parent, name)
        }
    }

    pub(super) fn node(&self, id: NodeId) -> io::Result<Node> {
        self.nodes.get(id.into())
    }

    pub(super) fn update(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) -> io::Result<()> {
        self.nodes.update(id.into(), change)
    }

    /// Returns the number of nodes, including replaced ones and the root.
    pub(super) fn len(&self) -> NodeId {
        self.nodes.len() as NodeId
    }

    /// Calls `look` with the name of a node.
    pub(super) fn with_name<R>(&self, node: &Node, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let (at, len) = node.name;
        self.bytes.with(at, len.into(), look)
    }

    pub(super) fn name(&self, node: &Node) -> io::Result<Vec<u8>> {
        self.with_name(node, <[u8]>::to_vec)
    }

    pub(super) fn subvolume(&self, id: NodeId) -> Option<usize> {
        self.subvolumes.get(&id).copied()
    }

    pub(super) fn unvisited(&self) -> Option<PathBuf> {
        self.marks.unvisited()
    }

    pub(super) fn path(&self, id: NodeId) -> io::Result<PathBuf> {
        Ok(PathBuf::from(OsStr::from_bytes(&self.path_bytes(id)?)))
    }

    fn path_bytes(&self, id: NodeId) -> io::Result<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT && at != NONE {
            let node = self.node(at)?;
            names.push(self.name(&node)?);
            at = node.parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    fn hash(parent: NodeId, name: &[u8]) -> u64 {
        // The same in each run, although only the positions in the table depend on it.
        let mut hasher = DefaultHasher::new();
        (parent, name).hash(&mut hasher);
        hasher.finish()
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Result<Option<(NodeId, Node)>> {
        let table = self.by_name.as_ref().expect("used while members are read");
        let mut found = None;
        let id = table.find(Self::hash(parent, name), |id| -> io::Result<bool> {
            let node = self.node(id)?;
            let is_it = node.parent == parent
                && !node.is_replaced
                && self.with_name(&node, |known| known == name)?;
            found = is_it.then_some(node);
            Ok(is_it)
        })?;
        Ok(id.zip(found))
    }

    /// Adds a directory. It can be changed to another kind while it is empty.
    fn add(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId> {
        let id = self.len();
        if id >= NONE - 1 {
            return Err(ArchiveError::TooMany { max: NONE - 1 }.into());
        }
        let at = self.bytes.push_row(name)?;
        let node = self.made_dir(parent, (at, name.len() as u16), InodeFlags::empty());
        let table = self.by_name.as_mut().expect("added while members are read");
        table.insert(Self::hash(parent, name), id)?;
        self.nodes.push(node)?;
        Ok(id)
    }

    /// Applies the requests for the node's path.
    fn mark(&mut self, id: NodeId) -> Result<()> {
        let node = self.node(id)?;
        let inherited = self.node(node.parent)?.flags;
        let marked = if self.marks.are_none() {
            Default::default()
        } else {
            let path = self.path_bytes(id)?;
            self.marks.visit(&path, node.is_dir(), inherited)
        };
        if node.flags != marked.flags {
            self.update(id, |node| node.flags = marked.flags)?;
        }
        match marked.subvolume {
            Some(subvolume) => self.subvolumes.insert(id, subvolume),
            None => self.subvolumes.remove(&id),
        };
        Ok(())
    }

    /// Adds a member to the tree. Returns a new node, or the existing one of a directory.
    pub(super) fn place(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        is_link: bool,
    ) -> Result<NodeId> {
        let shown = || PathBuf::from(OsStr::from_bytes(path));
        let names = split(path).ok_or_else(|| ArchiveError::Outside { path: shown() })?;
        let kind = FileKind::from_mode(attributes.file.mode);
        let is_dir = kind == Some(FileKind::Directory) && !is_link;
        let Some((last, on_the_way)) = names.split_last() else {
            if !is_dir {
                return Err(ArchiveError::ReplacesDirectory { path: shown() }.into());
            }
            self.set(ROOT, attributes)?;
            return Ok(ROOT);
        };
        let dir = self.dir_on_the_way(on_the_way, path)?;
        check_name(last, path)?;
        let id = match self.find(dir, last)? {
            // A directory keeps its node with all children, and only gets new attributes.
            Some((id, node)) if node.is_dir() && is_dir => id,
            Some((id, node)) => {
                if node.is_dir() && self.has_children(id)? {
                    return Err(ArchiveError::ReplacesDirectory { path: shown() }.into());
                }
                // The old node is kept, because hard links may refer to its inode.
                self.update(id, |node| node.is_replaced = true)?;
                self.add(dir, last)?
            }
            None => self.add(dir, last)?,
        };
        self.set(id, attributes)?;
        self.mark(id)?;
        Ok(id)
    }

    /// Finds the parent directory of a member, and adds missing directories.
    fn dir_on_the_way(&mut self, names: &[&[u8]], path: &[u8]) -> Result<NodeId> {
        let known = self.last_dir.0.split(|&byte| byte == b'/');
        if names.iter().copied().eq(known) {
            return Ok(self.last_dir.1);
        }
        let mut dir = ROOT;
        for name in names {
            check_name(name, path)?;
            dir = match self.find(dir, name)? {
                Some((id, node)) if node.is_dir() => id,
                Some(_) => {
                    let path = PathBuf::from(OsStr::from_bytes(path));
                    return Err(ArchiveError::NotADirectory { path }.into());
                }
                None => {
                    let id = self.add(dir, name)?;
                    self.mark(id)?;
                    id
                }
            };
        }
        self.last_dir = (names.join(&b'/'), dir);
        Ok(dir)
    }

    /// Returns whether a directory has children. Slow, but only needed if a directory would be replaced.
    fn has_children(&self, dir: NodeId) -> Result<bool> {
        for id in 0..self.len() {
            let node = self.node(id)?;
            if node.parent == dir && !node.is_replaced {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn set(&mut self, id: NodeId, attributes: &Attributes) -> Result<()> {
        self.update(id, |node| {
            node.file = attributes.file;
            node.xattrs_at = None;
        })?;
        Ok(())
    }

    /// Adds a hard link to the tree: another name of the member at `target`, which may follow later.
    pub(super) fn link(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        target: &[u8],
    ) -> Result<()> {
        let inode = |names: &Names, path| match names.look_up(path)? {
            Some(found) => names.inode(found).map(Some),
            None => Ok(None),
        };
        let found = match inode(self, target)? {
            Some(inode) if !self.node(inode)?.is_dir() => Some(inode),
            _ => None,
        };
        if found.is_some() && inode(self, path)? == found {
            return Ok(());
        }
        let id = self.place(path, attributes, true)?;
        self.has_links = true;
        // A link with an unresolved target points to itself, so it cannot be a directory with children.
        self.update(id, |node| node.link = Some(found.unwrap_or(id)))?;
        if found.is_none() {
            self.pending.push(&id.to_le_bytes())?;
            self.pending.push(&(target.len() as u32).to_le_bytes())?;
            self.pending.push(target)?;
        }
        Ok(())
    }

    /// Returns the node that contains the inode of a name.
    pub(super) fn inode(&self, id: NodeId) -> Result<NodeId> {
        let mut at = id;
        while let Some(link) = self.node(at)?.link.filter(|&link| link != at) {
            at = link;
        }
        Ok(at)
    }

    fn look_up(&self, path: &[u8]) -> Result<Option<NodeId>> {
        let Some(names) = split(path) else {
            return Ok(None);
        };
        let mut at = ROOT;
        for name in names {
            match self.find(at, name)? {
                Some((id, _)) => at = id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Resolves pending links and counts the names of files, after the last member.
    pub(super) fn finish(&mut self) -> Result<()> {
        let pending = std::mem::replace(&mut self.pending, Log::new(&self.scratch.dir, 0));
        let mut reader = pending.read();
        while !reader.is_at_end() {
            let id = NodeId::from_le_bytes(reader.array()?);
            let len = u32::from_le_bytes(reader.array()?);
            let target = reader.bytes(len as usize)?;
            self.resolve(id, &target)?;
        }
        self.by_name = None;
        if self.has_links {
            self.count_names()?;
        }
        Ok(())
    }

    fn resolve(&mut self, id: NodeId, target: &[u8]) -> Result<()> {
        if self.node(id)?.is_replaced {
            return Ok(());
        }
        let found = match self.look_up(target)? {
            Some(found) => Some(self.inode(found)?),
            None => None,
        };
        if let Some(inode) = found {
            let node = self.node(inode)?;
            // The target is itself unresolved.
            if !node.is_dir() && node.link.is_none() {
                self.update(id, |node| node.link = Some(inode))?;
                return Ok(());
            }
        }
        let error = ArchiveError::LinkTarget {
            path: self.path(id)?,
            target: PathBuf::from(OsStr::from_bytes(target)),
        };
        Err(error.into())
    }

    /// Counts the names of inodes with hard links.
    fn count_names(&mut self) -> Result<()> {
        for id in 1..self.len() {
            let node = self.node(id)?;
            if node.link.is_some() && !node.is_replaced {
                let inode = self.inode(id)?;
                self.update(inode, |node| node.names += 1)?;
            }
        }
        // If the first name of an inode still exists, it counts as well.
        for id in 1..self.len() {
            let node = self.node(id)?;
            if node.names > 0 && !node.is_replaced {
                self.update(id, |node| node.names += 1)?;
            }
        }
        Ok(())
    }

    /// Sorts all nodes with a name.
    fn sorted(&self) -> io::Result<Sorted<Named>> {
        let mut sorter = Sorter::new(&self.scratch.dir, self.scratch.memory_bytes / 8);
        for id in 1..self.len() {
            let node = self.node(id)?;
            if !node.is_replaced {
                self.with_name(&node, |name| {
                    sorter.push_with_tail(Named::new(node.parent, name, id), name)
                })??;
            }
        }
        sorter.finish()
    }

    /// Sorts all nodes with a name, by directory and then by name. The children of a directory become contiguous, and
    /// the directory records their range.
    pub(super) fn sort(&mut self) -> Result<Paged<NodeId>> {
        let paging = Paging {
            page_records: PAGE_BYTES / size_of::<NodeId>(),
            memory_bytes: self.scratch.memory_bytes / 32,
        };
        let mut order = Paged::new(&self.scratch.dir, paging);
        let mut dir = ROOT;
        let mut children = Children::default();
        let mut by_name = self.sorted()?;
        while let Some((named, name)) = by_name.next_with_tail()? {
            if named.parent != dir {
                self.set_children(dir, std::mem::take(&mut children))?;
                dir = named.parent;
                children.first = order.len() as u32;
            }
            children.count += 1;
            children.name_bytes += name.len() as u64;
            order.push(named.id)?;
        }
        self.set_children(dir, children)?;
        Ok(order)
    }

    fn set_children(&mut self, dir: NodeId, children: Children) -> io::Result<()> {
        self.update(dir, |node| node.children = children)
    }
}

fn check_name(name: &[u8], path: &[u8]) -> Result<()> {
    if limits::check_name(name).is_err() {
        let path = PathBuf::from(OsStr::from_bytes(path));
        return Err(ArchiveError::Name { path }.into());
    }
    Ok(())
}

/// Splits a path into its names. Returns None if it leads out of the root.
fn split(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names
        .filter(|name| !name.is_empty() && *name != b".")
        .collect();
    (!names.contains(&&b".."[..])).then_some(names)
}

//! The walk through the tree that an archive's members make.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::contents::{DeferredMember, MemberData, PutAside};
use super::names::{Names, NodeId, ROOT, Stored};
use super::stored::StoredLog;
use crate::mkfs::error::MkfsError;
use crate::mkfs::fill::byte_log::Scratch;
use crate::mkfs::fill::data_space::DataSpace;
use crate::mkfs::fill::encode::{BLOCK_BYTES, Coding, Part};
use crate::mkfs::fill::error::FillError;
use crate::mkfs::fill::source::{Attributes, Body, Contents, Event, LinkId, Source};

#[derive(Debug)]
pub(in crate::mkfs::fill) struct Replay {
    names: Names,
    stored: StoredLog,
    coding: Coding,
    archive: Arc<File>,
    /// Nodes by directory and name.
    order: Vec<NodeId>,
    /// How many names inodes have of which one is a hard link.
    links: HashMap<NodeId, u32>,
    /// Data that is not in place, and where each file's is.
    spool: Option<(Arc<File>, HashMap<NodeId, u64>)>,
    has_begun: bool,
    /// The names that are left in each directory on the way.
    stack: Vec<Range<usize>>,
}

impl Replay {
    pub(super) fn new(
        names: Names,
        stored: StoredLog,
        coding: Coding,
        archive: Arc<File>,
    ) -> Replay {
        let order = names.sorted();
        let mut links: HashMap<NodeId, u32> = HashMap::new();
        for &id in &order {
            let inode = names.inode(id);
            if inode != id {
                *links.entry(inode).or_default() += 1;
            }
        }
        // Those of which the first name is still there have one more.
        for &id in &order {
            if let Some(count) = links.get_mut(&id) {
                *count += 1;
            }
        }
        Replay {
            names,
            stored,
            coding,
            archive,
            order,
            links,
            spool: None,
            has_begun: false,
            stack: Vec::new(),
        }
    }

    fn children(&self, dir: NodeId) -> Range<usize> {
        let order = &self.order;
        let start = order.partition_point(|&id| self.names.parent(id) < dir);
        let len = order[start..].partition_point(|&id| self.names.parent(id) == dir);
        start..start + len
    }

    /// The inodes of all names in the order of the walk, with the subvolume that each name is in.
    fn inodes(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        let mut stack = vec![(ROOT, self.children(ROOT))];
        std::iter::from_fn(move || {
            while let Some((subvolume, names)) = stack.last_mut() {
                let Some(at) = names.next() else {
                    stack.pop();
                    continue;
                };
                let id = self.order[at];
                if self.names.node(id).is_dir() {
                    let inside = match self.names.subvolume(id) {
                        Some(_) => id,
                        None => *subvolume,
                    };
                    let children = self.children(id);
                    stack.push((inside, children));
                } else {
                    return Some((self.names.inode(id), *subvolume));
                }
            }
            None
        })
    }

    /// Whether data lies as if it had been placed in the order of the walk, and nothing else does.
    pub(super) fn is_in_place(&self) -> bool {
        let mut seen = HashSet::new();
        let mut next = 0;
        for (inode, subvolume) in self.inodes() {
            let Stored::Placed { first, count, .. } = self.names.node(inode).stored else {
                continue;
            };
            // Other names in the same subvolume are of the same file.
            let is_linked = self.links.contains_key(&inode);
            if is_linked && !seen.insert((inode, subvolume)) {
                continue;
            }
            // Extents are numbered as they were placed.
            if first != next {
                return false;
            }
            next += u64::from(count);
        }
        next == self.stored.extent_count()
    }

    /// Copies all data to a file, in the order of the walk.
    pub(super) fn put_aside(
        &mut self,
        data: &mut DataSpace<'_>,
        scratch: &Scratch,
    ) -> Result<(), FillError> {
        let spool = tempfile::tempfile_in(&scratch.dir).map_err(MkfsError::Scratch)?;
        let mut places = HashMap::new();
        let mut at = 0;
        let mut buf = vec![0; BLOCK_BYTES];
        for (inode, _) in self.inodes() {
            let Stored::Placed { first, count, .. } = self.names.node(inode).stored else {
                continue;
            };
            if count == 0 || places.contains_key(&inode) {
                continue;
            }
            places.insert(inode, at);
            for extent in self.stored.extents(first, count)? {
                let mut done = 0;
                while done < extent.disk_bytes {
                    let len = (extent.disk_bytes - done).min(BLOCK_BYTES as u64);
                    let buf = &mut buf[..len as usize];
                    data.read((extent.logical.0 + done).into(), buf)?;
                    (&spool).write_all(buf).map_err(MkfsError::Scratch)?;
                    done += len;
                }
                at += extent.disk_bytes;
            }
        }
        self.spool = Some((Arc::new(spool), places));
        Ok(())
    }

    fn enter(&mut self, dir: NodeId) -> Result<Event, FillError> {
        let children = self.children(dir);
        let names = self.order[children.clone()].iter();
        let name_bytes = names.map(|&id| self.names.name(id).len() as u64).sum();
        self.stack.push(children);
        Ok(Event::Enter {
            name: self.names.name(dir).to_vec(),
            attributes: self.attributes(dir)?,
            name_bytes,
            subvolume: self.names.subvolume(dir),
        })
    }

    fn attributes(&self, id: NodeId) -> Result<Attributes, FillError> {
        let node = self.names.node(id);
        let mut attributes = node.attributes();
        if let Some(at) = node.xattrs_at {
            attributes.xattrs = self.stored.xattrs(at)?;
        }
        Ok(attributes)
    }

    fn file(&self, id: NodeId) -> Result<Event, FillError> {
        let inode = self.names.inode(id);
        let link = self.links.get(&inode).map(|&names| {
            let link = LinkId {
                device: 0,
                number: inode.into(),
            };
            (link, names)
        });
        let mut attributes = self.attributes(inode)?;
        // As in a folder, the first name that is met decides.
        attributes.flags = self.names.node(id).flags();
        Ok(Event::File {
            name: self.names.name(id).to_vec(),
            attributes,
            link: link.filter(|(_, names)| *names > 1),
            body: self.body(inode)?,
        })
    }

    fn body(&self, inode: NodeId) -> Result<Body, FillError> {
        let node = self.names.node(inode);
        let contents = match node.stored {
            Stored::Target { at, len } => {
                return Ok(Body::Symlink(self.stored.target(at, len)?));
            }
            Stored::Nothing if !node.is_regular() => return Ok(Body::None),
            Stored::Nothing => whole(Vec::new()),
            Stored::Inline { at } => whole(vec![Part::Inline(self.stored.inline(at)?)]),
            Stored::InArchive { at } => {
                let parts = match node.parts {
                    Some((at, count)) => Some(self.stored.parts(at, count)?),
                    None => None,
                };
                Contents::Deferred(Box::new(DeferredMember {
                    file: Arc::clone(&self.archive),
                    at,
                    data: MemberData::new(node.size, parts),
                }))
            }
            Stored::Placed {
                first,
                count,
                is_incompressible,
            } => {
                let extents = self.stored.extents(first, count)?;
                match &self.spool {
                    Some((spool, places)) => Contents::Deferred(Box::new(PutAside {
                        spool: Arc::clone(spool),
                        at: places.get(&inode).copied().unwrap_or(0),
                        extents,
                        is_incompressible,
                    })),
                    None => Contents::Placed {
                        extents,
                        is_incompressible,
                    },
                }
            }
        };
        let size = node.size;
        Ok(Body::Data { size, contents })
    }
}

fn whole(parts: Vec<Part>) -> Contents {
    Contents::Whole {
        parts,
        is_incompressible: false,
    }
}

impl Source for Replay {
    fn next(&mut self) -> Result<Option<Event>, FillError> {
        if !self.has_begun {
            self.has_begun = true;
            return self.enter(ROOT).map(Some);
        }
        let Some(names) = self.stack.last_mut() else {
            return Ok(None);
        };
        let Some(at) = names.next() else {
            self.stack.pop();
            return Ok(Some(Event::Leave));
        };
        let id = self.order[at];
        match self.names.node(id).is_dir() {
            true => self.enter(id),
            false => self.file(id),
        }
        .map(Some)
    }

    fn skip_contents(&mut self) {
        self.coding.skip_contents();
    }

    fn unmet(&self) -> Option<PathBuf> {
        self.names.unmet()
    }
}

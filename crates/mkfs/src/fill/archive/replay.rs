//! The walk through the tree of an archive's members.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_spill::{Log, Paged};

use super::contents::{DeferredMember, MemberData, PutAside};
use super::names::{Names, ROOT};
use super::node::{Children, Node, NodeId, Stored};
use super::put_aside;
use super::stored::StoredLog;
use crate::fill::LeftOutAcls;
use crate::fill::data_space::DataSpace;
use crate::fill::encode::{BLOCK_BYTES, Coding, Part};
use crate::fill::error::FillError;
use crate::fill::scratch::Scratch;
use crate::fill::source::{Attributes, Body, Contents, Event, LinkId, Source};

#[derive(Debug)]
pub(in crate::fill) struct Replay {
    names: Names,
    stored: StoredLog,
    coding: Coding,
    /// The archive, if it is seekable.
    archive: Option<Arc<File>>,
    /// Nodes sorted by directory and name.
    order: Paged<NodeId>,
    /// The temporary file with data that must be placed again.
    spool: Option<Arc<Log>>,
    pub(super) left_out: Option<LeftOutAcls>,
    has_begun: bool,
    /// The remaining names in each directory on the path.
    stack: Vec<Range<u64>>,
}

/// A file in the walk: its inode, and the subvolume of the name.
type Met = (NodeId, NodeId);

impl Replay {
    pub(super) fn new(
        mut names: Names,
        stored: StoredLog,
        coding: Coding,
        archive: Option<Arc<File>>,
    ) -> Result<Replay, FillError> {
        let order = names.sort()?;
        Ok(Replay {
            names,
            stored,
            coding,
            archive,
            order,
            spool: None,
            left_out: None,
            has_begun: false,
            stack: Vec::new(),
        })
    }

    /// Calls `visit` with all files in the order of the walk, while it returns true.
    fn each_file(
        &mut self,
        visit: &mut dyn FnMut(&mut Names, &StoredLog, Met) -> Result<bool, FillError>,
    ) -> Result<bool, FillError> {
        let root = self.names.node(ROOT).map_err(put_aside)?;
        let mut stack = vec![(ROOT, places(&root))];
        while let Some((subvolume, places_left)) = stack.last_mut() {
            let Some(at) = places_left.next() else {
                stack.pop();
                continue;
            };
            let subvolume = *subvolume;
            let id = self.order.get(at).map_err(put_aside)?;
            let node = self.names.node(id).map_err(put_aside)?;
            if node.is_dir() {
                let inside = match self.names.subvolume(id) {
                    Some(_) => id,
                    None => subvolume,
                };
                stack.push((inside, places(&node)));
                continue;
            }
            let inode = match node.link {
                Some(_) => self.names.inode(id)?,
                None => id,
            };
            if !visit(&mut self.names, &self.stored, (inode, subvolume))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether data is placed exactly in the order of the walk.
    ///
    /// May wrongly return false for a file with names in a subvolume, then in a nested one, and in the first again.
    pub(super) fn is_in_place(&mut self) -> Result<bool, FillError> {
        let mut next = 0;
        let ascend = self.each_file(&mut |names, _, (inode, subvolume)| {
            let node = names.node(inode).map_err(put_aside)?;
            let Stored::Placed { first, count, .. } = node.stored else {
                return Ok(true);
            };
            if node.names > 0 {
                // Further names in the same subvolume refer to the same file.
                if node.met_in == subvolume {
                    return Ok(true);
                }
                let met = names.update(inode, |node| node.met_in = subvolume);
                met.map_err(put_aside)?;
            }
            // Extents are numbered in the order of placement.
            let is_next = first == next;
            next += u64::from(count);
            Ok(is_next)
        })?;
        Ok(ascend && next == self.stored.extent_count())
    }

    /// Copies all data to a temporary file, in the order of the walk.
    pub(super) fn put_aside(
        &mut self,
        data: &mut DataSpace<'_>,
        scratch: &Scratch,
    ) -> Result<(), FillError> {
        let mut spool = Log::new(&scratch.dir, 0);
        let mut buf = vec![0; BLOCK_BYTES];
        self.each_file(&mut |names, stored, (inode, _)| {
            let node = names.node(inode).map_err(put_aside)?;
            let Stored::Placed { first, count, .. } = node.stored else {
                return Ok(true);
            };
            if count == 0 || node.aside_at.is_some() {
                return Ok(true);
            }
            let placed = names.update(inode, |node| node.aside_at = Some(spool.len_bytes()));
            placed.map_err(put_aside)?;
            for extent in stored.extents(first, count)? {
                let mut done = 0;
                while done < extent.disk_bytes {
                    let len = (extent.disk_bytes - done).min(BLOCK_BYTES as u64);
                    let buf = &mut buf[..len as usize];
                    data.read((extent.logical.0 + done).into(), buf)?;
                    spool.push(buf).map_err(put_aside)?;
                    done += len;
                }
            }
            Ok(true)
        })?;
        self.spool = Some(Arc::new(spool));
        Ok(())
    }

    fn enter(&mut self, id: NodeId, dir: &Node) -> Result<Event, FillError> {
        self.stack.push(places(dir));
        Ok(Event::Enter {
            name: self.names.name(dir).map_err(put_aside)?,
            attributes: self.attributes(dir)?,
            name_bytes: dir.children.name_bytes,
            subvolume: self.names.subvolume(id),
        })
    }

    fn attributes(&self, node: &Node) -> Result<Attributes, FillError> {
        let mut attributes = node.attributes();
        if let Some(at) = node.xattrs_at {
            attributes.xattrs = self.stored.xattrs(at)?;
        }
        Ok(attributes)
    }

    fn file(&self, id: NodeId, name: &Node) -> Result<Event, FillError> {
        let (inode, node) = match name.link {
            None => (id, *name),
            Some(_) => {
                let inode = self.names.inode(id)?;
                (inode, self.names.node(inode).map_err(put_aside)?)
            }
        };
        let link = LinkId {
            device: 0,
            number: inode.into(),
        };
        let mut attributes = self.attributes(&node)?;
        // As with a directory as the source, the first name in the walk decides.
        attributes.flags = name.flags;
        Ok(Event::File {
            name: self.names.name(name).map_err(put_aside)?,
            attributes,
            link: (node.names > 1).then_some((link, node.names)),
            body: self.body(&node)?,
        })
    }

    fn body(&self, node: &Node) -> Result<Body, FillError> {
        let contents = match node.stored {
            Stored::Target { at, len } => {
                return Ok(Body::Symlink(self.stored.target(at, len)?));
            }
            Stored::Nothing if !node.is_regular() => return Ok(Body::None),
            Stored::Nothing => whole(Vec::new()),
            Stored::Inline { at } => whole(vec![Part::Inline(self.stored.inline(at)?)]),
            Stored::InArchive { at } => {
                let archive = self.archive.as_ref();
                let archive = archive.expect("data stays in an archive that can be read anywhere");
                let parts = match node.parts {
                    Some((at, count)) => Some(self.stored.parts(at, count)?),
                    None => None,
                };
                Contents::Deferred(Box::new(DeferredMember {
                    file: Arc::clone(archive),
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
                    Some(spool) => Contents::Deferred(Box::new(PutAside {
                        spool: Arc::clone(spool),
                        at: node.aside_at.unwrap_or(0),
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

/// Returns the range of a directory's children in the sorted order.
fn places(dir: &Node) -> Range<u64> {
    let Children { first, count, .. } = dir.children;
    first.into()..u64::from(first) + u64::from(count)
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
            let root = self.names.node(ROOT).map_err(put_aside)?;
            return self.enter(ROOT, &root).map(Some);
        }
        let Some(names) = self.stack.last_mut() else {
            return Ok(None);
        };
        let Some(at) = names.next() else {
            self.stack.pop();
            return Ok(Some(Event::Leave));
        };
        let id = self.order.get(at).map_err(put_aside)?;
        let node = self.names.node(id).map_err(put_aside)?;
        let event = if node.is_dir() {
            self.enter(id, &node)
        } else {
            self.file(id, &node)
        };
        event.map(Some)
    }

    fn skip_contents(&mut self) {
        self.coding.skip_contents();
    }

    fn unvisited(&self) -> Option<PathBuf> {
        self.names.unvisited()
    }

    fn left_out(&self) -> Option<LeftOutAcls> {
        self.left_out.clone()
    }
}

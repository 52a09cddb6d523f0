//! Conversion of a walk over files to the items of subvolumes.
//!
//! Inodes are numbered in the order of the walk, in each subvolume from 256 (its root) on. Directory entries have the
//! indices 2, 3, ... in the order of their names. The same walk therefore gives the same items.
//!
//! Memory: the source holds the names of the directories on the current path. This module only keeps a bounded number
//! of files with several names (`links`).
//!
//! Not here: the place of data (`data_space`), the encoding of files (`encode`), trees (`tree_placement`).

mod file;
mod links;

pub(super) use self::file::MAX_EXTENT_BYTES;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{DirHead, FileKind, InodeItem, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::limits::{self, LimitError};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use self::file::OpenFile;
use self::links::{Linked, Links};
use super::data_space::{DataSpace, PlacedExtent};
use super::encode::Coding;
use super::error::FillError;
use super::filled::{ExtentLog, Walked};
use super::inode::{Name, dir_entry, put_name, put_names, put_xattrs};
use super::item_sorter::{ItemSorter, Record};
use super::marks::DENSE;
use super::scratch::Scratch;
use super::source::{Attributes, Body, Event, LinkId, Source};
use super::times::TimeRule;
use super::watch::FillWatch;
use super::{FillStats, SubvolumeRequest};
use crate::files::{Subvolume, SubvolumeEntry};
use crate::options::Geometry;
use crate::trees::{GENERATION, PARENT_NAME, subvolume_location};

const FIRST_INDEX: u64 = 2;

/// The parameters common to all files.
pub(super) struct FillerSetup<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) coding: &'a Coding,
    pub(super) scratch: &'a Scratch,
    pub(super) times: TimeRule,
    /// The owner of all files, which replaces their own.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) created: Timespec,
    pub(super) top_level: Uuid,
    pub(super) requests: &'a [SubvolumeRequest],
    /// Returns the UUID of a new subvolume.
    pub(super) new_uuid: &'a dyn Fn(RootId) -> Uuid,
}

pub(super) struct Filler<'a, 'd> {
    setup: FillerSetup<'a>,
    data: &'d mut DataSpace<'a>,
    watch: FillWatch<'d>,
    items: ItemSorter,
    extents: ExtentLog,
    subvolumes: Vec<Numbered>,
    default_subvolume: RootId,
    /// The path from the root to the current directory.
    dirs: Vec<Dir>,
    links: Links,
    current: Option<OpenFile>,
    scratch: Record,
    placed: Vec<PlacedExtent>,
    stats: FillStats,
}

struct Numbered {
    subvolume: Subvolume,
    next_ino: u64,
}

struct Dir {
    name: Vec<u8>,
    /// The index of its subvolume.
    subvolume: usize,
    ino: u64,
    next_index: u64,
}

impl<'a, 'd> Filler<'a, 'd> {
    pub(super) fn new(
        setup: FillerSetup<'a>,
        data: &'d mut DataSpace<'a>,
        watch: FillWatch<'d>,
    ) -> Filler<'a, 'd> {
        let scratch = setup.scratch;
        Filler {
            data,
            watch,
            items: ItemSorter::new(&scratch.dir, scratch.sorting_bytes()),
            extents: ExtentLog::new(scratch),
            subvolumes: Vec::new(),
            default_subvolume: RootId::FS_TREE,
            dirs: Vec::new(),
            links: Links::new(scratch),
            current: None,
            scratch: Record::new(RootId::FS_TREE, 0),
            placed: Vec::new(),
            stats: FillStats::default(),
            setup,
        }
    }

    /// Converts the whole walk.
    pub(super) fn fill(
        mut self,
        source: &mut dyn Source,
    ) -> Result<(Walked, FillStats), FillError> {
        while let Some(event) = source.next()? {
            self.event(event)?;
            if self.data.is_over() {
                source.skip_contents();
            }
        }
        if let Some(path) = source.unvisited() {
            return Err(FillError::NotFound { path });
        }
        let links = std::mem::replace(&mut self.links, Links::new(self.setup.scratch));
        let trees: Vec<RootId> = (0..self.subvolumes.len())
            .map(|subvolume| self.tree(subvolume))
            .collect();
        links.finish(trees.into_iter(), |tree, linked| {
            self.finish_linked(tree, linked)
        })?;
        let subvolumes = self.subvolumes.into_iter();
        let walked = Walked {
            subvolumes: subvolumes.map(|numbered| numbered.subvolume).collect(),
            default_subvolume: self.default_subvolume,
            items: self.items.finish()?,
            extents: self.extents,
        };
        Ok((walked, self.stats))
    }

    fn event(&mut self, event: Event) -> Result<(), FillError> {
        match event {
            Event::Enter {
                name,
                attributes,
                name_bytes,
                subvolume,
            } => self.enter(name, attributes, name_bytes, subvolume),
            Event::Leave => {
                self.dirs.pop();
                Ok(())
            }
            Event::File {
                name,
                attributes,
                link,
                body,
            } => self.file(name, attributes, link, body),
            Event::Parts(parts) => {
                let mut file = self.current.take().expect("parts follow their file");
                for part in parts {
                    self.part(&mut file, part)?;
                }
                self.current = Some(file);
                Ok(())
            }
            Event::End { is_incompressible } => {
                let mut file = self.current.take().expect("an end follows its file");
                file.is_incompressible = is_incompressible;
                self.finish_file(file)
            }
        }
    }

    /// Returns the path of a name in the current directory.
    fn path(&self, name: &[u8]) -> PathBuf {
        path_in(&self.dirs, name)
    }

    fn begin(&mut self, name: &[u8]) -> Result<(), FillError> {
        Ok(self.watch.begin(|| path_in(&self.dirs, name))?)
    }

    fn max_item_bytes(&self) -> usize {
        leaf_data_size(self.setup.geometry.nodesize as usize) - ITEM_HEAD_SIZE
    }

    fn tree(&self, subvolume: usize) -> RootId {
        self.subvolumes[subvolume].subvolume.id
    }

    fn new_ino(&mut self, subvolume: usize) -> u64 {
        let numbered = &mut self.subvolumes[subvolume];
        numbered.next_ino += 1;
        numbered.next_ino - 1
    }

    fn enter(
        &mut self,
        name: Vec<u8>,
        attributes: Attributes,
        name_bytes: u64,
        subvolume: Option<usize>,
    ) -> Result<(), FillError> {
        self.begin(&name)?;
        self.check(&name, &attributes)?;
        self.stats.directories += 1;
        let parent = self.dirs.last().map(|dir| dir.subvolume);
        let dir = match (parent, subvolume) {
            (None, _) => {
                let uuid = self.setup.top_level;
                self.add_subvolume(RootId::FS_TREE, uuid, false, None);
                self.root(0, name)
            }
            (Some(_), Some(request)) => {
                let request = &self.setup.requests[request];
                let id = RootId(RootId::FIRST_FREE + self.subvolumes.len() as u64 - 1);
                let location = subvolume_location(id);
                let entry = self.add_entry(&name, location, FileKind::Directory)?;
                let uuid = (self.setup.new_uuid)(id);
                if request.is_default {
                    self.default_subvolume = id;
                }
                self.add_subvolume(id, uuid, request.is_read_only, Some(entry));
                self.root(self.subvolumes.len() - 1, name)
            }
            (Some(subvolume), None) => {
                let ino = self.new_ino(subvolume);
                let location = Key::new(ino, KeyType::INODE_ITEM, 0);
                let entry = self.add_entry(&name, location, FileKind::Directory)?;
                self.scratch.reset(self.tree(subvolume), ino);
                self.put_dir(&attributes, name_bytes);
                put_name(&mut self.scratch, entry.dir.0, entry.index, &name);
                Dir {
                    name,
                    subvolume,
                    ino,
                    next_index: FIRST_INDEX,
                }
            }
        };
        // The root directory of a subvolume is its own parent.
        if dir.ino == InodeNr::FIRST_FREE.0 {
            self.scratch.reset(self.tree(dir.subvolume), dir.ino);
            self.put_dir(&attributes, name_bytes);
            put_name(&mut self.scratch, dir.ino, 0, PARENT_NAME);
        }
        let max = self.max_item_bytes();
        if !put_xattrs(&mut self.scratch, &attributes.xattrs, max) {
            let path = self.path(&dir.name);
            return Err(FillError::XattrsCollide { path });
        }
        self.items.push(&self.scratch)?;
        self.dirs.push(dir);
        Ok(())
    }

    fn add_subvolume(
        &mut self,
        id: RootId,
        uuid: Uuid,
        is_read_only: bool,
        entry: Option<SubvolumeEntry>,
    ) {
        self.subvolumes.push(Numbered {
            subvolume: Subvolume {
                id,
                uuid,
                is_read_only,
                entry,
                data_bytes: 0,
            },
            next_ino: InodeNr::FIRST_FREE.0 + 1,
        });
    }

    fn root(&self, subvolume: usize, name: Vec<u8>) -> Dir {
        Dir {
            name,
            subvolume,
            ino: InodeNr::FIRST_FREE.0,
            next_index: FIRST_INDEX,
        }
    }

    fn put_dir(&mut self, attributes: &Attributes, name_bytes: u64) {
        let inode = self.inode(attributes, 2 * name_bytes, 0);
        let data = inode.as_bytes();
        self.scratch.item(KeyType::INODE_ITEM, 0, &[data]);
    }

    fn inode(&self, attributes: &Attributes, size: u64, nbytes: u64) -> InodeItem {
        let mut inode = InodeItem::new_zeroed();
        inode.generation = GENERATION.into();
        inode.transid = GENERATION.into();
        inode.size = size.into();
        inode.nbytes = nbytes.into();
        inode.nlink = 1.into();
        let file = &attributes.file;
        let (uid, gid) = self.setup.owner.unwrap_or((file.uid, file.gid));
        inode.uid = uid.into();
        inode.gid = gid.into();
        inode.mode = file.mode.into();
        inode.rdev = file.device.to_inode().into();
        inode.flags = attributes.flags.difference(DENSE).bits().into();
        let created = self.setup.created;
        self.setup.times.apply(&file.times, created, &mut inode);
        inode
    }

    /// Adds an entry to the current directory.
    fn add_entry(
        &mut self,
        name: &[u8],
        location: Key,
        kind: FileKind,
    ) -> Result<SubvolumeEntry, FillError> {
        let dir = self
            .dirs
            .last_mut()
            .expect("only the root is in no directory");
        let index = dir.next_index;
        dir.next_index += 1;
        let (ino, tree) = (dir.ino, self.subvolumes[dir.subvolume].subvolume.id);
        let head: DirHead = dir_entry(location, kind, name);
        let data = [head.as_bytes(), name];
        for (item_type, offset) in [
            (KeyType::DIR_ITEM, u64::from(name_hash(name))),
            (KeyType::DIR_INDEX, index),
        ] {
            self.scratch.reset(tree, ino);
            self.scratch.item(item_type, offset, &data);
            self.items.push(&self.scratch)?;
        }
        Ok(SubvolumeEntry {
            parent: tree,
            dir: InodeNr(ino),
            index,
            name: name.to_vec(),
        })
    }

    fn check(&self, name: &[u8], attributes: &Attributes) -> Result<(), FillError> {
        // The root has no name.
        let is_root = self.dirs.is_empty();
        let checked = if is_root {
            Ok(())
        } else {
            limits::check_name(name)
        };
        let nodesize = self.setup.geometry.nodesize as usize;
        let mut xattrs = attributes.xattrs.iter();
        checked
            .and_then(|()| {
                xattrs.try_for_each(|(xattr, value)| limits::check_xattr(xattr, value, nodesize))
            })
            .map_err(|limit| self.beyond(name, limit))
    }

    /// Returns the error for a file in the current directory that exceeds a limit.
    fn beyond(&self, name: &[u8], limit: LimitError) -> FillError {
        let path = self.path(name);
        FillError::Limit { path, limit }
    }

    /// Adds a name of a file that is not a directory.
    fn file(
        &mut self,
        name: Vec<u8>,
        attributes: Attributes,
        link: Option<(LinkId, u32)>,
        body: Body,
    ) -> Result<(), FillError> {
        self.begin(&name)?;
        self.check(&name, &attributes)?;
        let kind = kind(&attributes);
        let subvolume = self
            .dirs
            .last()
            .expect("files are in directories")
            .subvolume;
        let tree = self.tree(subvolume);
        let known = match link {
            Some((id, _)) => self.links.ino(tree, id)?,
            None => None,
        };
        let ino = match known {
            Some(ino) => ino,
            None => self.new_ino(subvolume),
        };
        let location = Key::new(ino, KeyType::INODE_ITEM, 0);
        let entry = self.add_entry(&name, location, kind)?;
        let name = Name {
            dir: entry.dir.0,
            index: entry.index,
            name,
        };
        if let (Some((id, _)), Some(ino)) = (link, known) {
            return match self.links.add_name(tree, id, ino, name)? {
                Some(linked) => self.finish_linked(tree, linked),
                None => Ok(()),
            };
        }
        let file = OpenFile::new(tree, subvolume, ino, name, attributes, link);
        self.contents(file, body)
    }

    fn finish_linked(&mut self, tree: RootId, mut linked: Linked) -> Result<(), FillError> {
        if limits::check_links(linked.names.len() as u64).is_err() {
            return Err(FillError::TooManyLinks { ino: linked.ino });
        }
        linked.inode.nlink = (linked.names.len() as u32).into();
        self.scratch.reset(tree, linked.ino);
        let inode = linked.inode.as_bytes();
        self.scratch.item(KeyType::INODE_ITEM, 0, &[inode]);
        let incompat = self.setup.geometry.features.incompat;
        let has_extref = incompat.contains(Incompat::EXTENDED_IREF);
        let max = self.max_item_bytes();
        if !put_names(&mut self.scratch, &linked.names, max, has_extref) {
            return Err(FillError::TooManyLinks { ino: linked.ino });
        }
        self.items.push(&self.scratch)?;
        Ok(())
    }
}

/// Returns the path of a name in the last directory of `dirs`, relative to the root.
fn path_in(dirs: &[Dir], name: &[u8]) -> PathBuf {
    // The path is relative to the root, so the root's own name is skipped.
    let names = dirs.iter().map(|dir| dir.name.as_slice()).chain([name]);
    names.skip(1).map(OsStr::from_bytes).collect()
}

fn kind(attributes: &Attributes) -> FileKind {
    FileKind::from_mode(attributes.file.mode).expect("sources know the kind")
}

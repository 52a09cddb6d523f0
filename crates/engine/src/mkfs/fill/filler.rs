//! Turns a walk of files into items of subvolumes.
//!
//! Inodes are numbered in the order of the walk, in each subvolume from its root's 256 on; entries of a
//! directory have the indices 2, 3, ... in the order of their names. So the same walk gives the same items.
//!
//! Memory: the names of the directories on the way to where the walk is are the source's; here are only the
//! files of which more names may come.
//!
//! Not here: where data goes (`data_space`), how files are encoded (`encode`), trees (`settle`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{
    DirHead, FILE_EXTENT_INLINE_START, FileKind, InodeFlags, InodeItem, Timespec,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::data_space::{DataSpace, PlacedExtent};
use super::encode::{Coding, Inline, Part};
use super::error::FillError;
use super::filled::ExtentLog;
use super::inode::{
    Name, dir_entry, put_extent, put_hole, put_inline, put_name, put_names, put_xattrs,
};
use super::item_sorter::{ItemSorter, Record, SortedItems};
use super::source::{Attributes, Body, Contents, Event, LinkId, Source};
use super::times::TimeRule;
use super::{FillStats, SubvolumeWish};
use crate::mkfs::files::{Subvolume, SubvolumeEntry};
use crate::mkfs::options::Geometry;
use crate::mkfs::trees::{GENERATION, PARENT_NAME, subvolume_location};

/// Items that wait to be sorted.
const SORT_BUDGET_BYTES: usize = 192 << 20;
/// Extents of a file that are held until its inode is known.
const HELD_EXTENTS_BYTES: usize = 64 << 10;
/// The kernel makes no longer extent.
pub(super) const MAX_EXTENT_BYTES: u64 = 128 << 20;
const MAX_NAME_BYTES: usize = 255;
const FIRST_INDEX: u64 = 2;

/// What is the same for all files.
pub(super) struct FillerSetup<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) coding: &'a Coding,
    pub(super) scratch_dir: &'a Path,
    pub(super) times: TimeRule,
    pub(super) created: Timespec,
    pub(super) top_level: Uuid,
    pub(super) wishes: &'a [SubvolumeWish],
    /// The UUID of a subvolume.
    pub(super) new_uuid: &'a dyn Fn(RootId) -> Uuid,
}

pub(super) struct Filler<'a, 'd> {
    setup: FillerSetup<'a>,
    data: &'d mut DataSpace<'a>,
    items: ItemSorter,
    extents: ExtentLog,
    subvolumes: Vec<Numbered>,
    default_subvolume: RootId,
    /// From the root to where the walk is.
    dirs: Vec<Dir>,
    linked: HashMap<(RootId, LinkId), Linked>,
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
    /// By number.
    subvolume: usize,
    ino: u64,
    next_index: u64,
}

/// A file that may have more names.
struct Linked {
    ino: u64,
    inode: InodeItem,
    names: Vec<Name>,
    left: u32,
}

/// A file that is being filled.
struct OpenFile {
    subvolume: usize,
    ino: u64,
    attributes: Attributes,
    kind: FileKind,
    size: u64,
    name: Name,
    link: Option<(LinkId, u32)>,
    nbytes: u64,
    is_compressed: bool,
    is_incompressible: bool,
    is_inline: bool,
    /// Items of extents that were not put aside yet.
    extents: Record,
    has_put_aside: bool,
    /// The extent that may go on.
    run: Option<PlacedExtent>,
    /// Up to here the file has extents or holes.
    end: u64,
}

/// What a walk gave.
pub(super) struct Walked {
    pub(super) subvolumes: Vec<Subvolume>,
    pub(super) default_subvolume: RootId,
    pub(super) items: SortedItems,
    pub(super) extents: ExtentLog,
    pub(super) stats: FillStats,
}

impl<'a, 'd> Filler<'a, 'd> {
    pub(super) fn new(setup: FillerSetup<'a>, data: &'d mut DataSpace<'a>) -> Filler<'a, 'd> {
        let scratch_dir = setup.scratch_dir;
        Filler {
            data,
            items: ItemSorter::new(scratch_dir, SORT_BUDGET_BYTES),
            extents: ExtentLog::new(scratch_dir),
            subvolumes: Vec::new(),
            default_subvolume: RootId::FS_TREE,
            dirs: Vec::new(),
            linked: HashMap::new(),
            current: None,
            scratch: Record::new(RootId::FS_TREE, 0),
            placed: Vec::new(),
            stats: FillStats::default(),
            setup,
        }
    }

    /// Takes the whole walk.
    pub(super) fn fill(mut self, source: &mut dyn Source) -> Result<Walked, FillError> {
        while let Some(event) = source.next()? {
            self.event(event)?;
            if self.data.is_over() {
                source.skip_contents();
            }
        }
        if let Some(path) = source.unmet() {
            return Err(FillError::NotFound { path });
        }
        for ((tree, _), linked) in std::mem::take(&mut self.linked) {
            self.finish_linked(tree, linked)?;
        }
        let subvolumes = self.subvolumes.into_iter();
        Ok(Walked {
            subvolumes: subvolumes.map(|numbered| numbered.subvolume).collect(),
            default_subvolume: self.default_subvolume,
            items: self.items.finish(),
            extents: self.extents,
            stats: self.stats,
        })
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

    /// The path of a name where the walk is.
    fn path(&self, name: &[u8]) -> PathBuf {
        let dirs = self.dirs.iter().skip(1).map(|dir| dir.name.as_slice());
        dirs.chain([name]).map(OsStr::from_bytes).collect()
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
        self.check(&name, &attributes)?;
        self.stats.directories += 1;
        let parent = self.dirs.last().map(|dir| dir.subvolume);
        let dir = match (parent, subvolume) {
            (None, _) => {
                let uuid = self.setup.top_level;
                self.add_subvolume(RootId::FS_TREE, uuid, false, None);
                self.root(0, name)
            }
            (Some(_), Some(wish)) => {
                let wish = &self.setup.wishes[wish];
                let id = RootId(RootId::FIRST_FREE + self.subvolumes.len() as u64 - 1);
                let location = subvolume_location(id);
                let entry = self.add_entry(&name, location, FileKind::Directory)?;
                let uuid = (self.setup.new_uuid)(id);
                if wish.is_default {
                    self.default_subvolume = id;
                }
                self.add_subvolume(id, uuid, wish.is_read_only, Some(entry));
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
        inode.uid = attributes.uid.into();
        inode.gid = attributes.gid.into();
        inode.mode = attributes.mode.into();
        inode.rdev = attributes.rdev.into();
        inode.flags = attributes.flags.bits().into();
        let (times, created) = (&attributes.times, self.setup.created);
        self.setup.times.apply(times, created, &mut inode);
        inode
    }

    /// Adds an entry to the directory that the walk is in.
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
        if name.len() > MAX_NAME_BYTES {
            return Err(FillError::NameTooLong {
                path: self.path(name),
                len: name.len(),
            });
        }
        let max = self.max_item_bytes() - size_of::<DirHead>();
        for (xattr, value) in &attributes.xattrs {
            let len = xattr.len() + value.len();
            if len > max {
                return Err(FillError::XattrTooLarge {
                    path: self.path(name),
                    name: String::from_utf8_lossy(xattr).into_owned(),
                    len,
                    max,
                });
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        name: Vec<u8>,
        attributes: Attributes,
        link: Option<(LinkId, u32)>,
        body: Body,
    ) -> Result<(), FillError> {
        self.check(&name, &attributes)?;
        let kind = FileKind::from_mode(attributes.mode).expect("sources know the kind");
        let subvolume = self
            .dirs
            .last()
            .expect("files are in directories")
            .subvolume;
        let tree = self.tree(subvolume);
        let known = link.and_then(|(id, _)| self.linked.get(&(tree, id)));
        let known = known.map(|linked| linked.ino);
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
        if let (Some((id, _)), true) = (link, known.is_some()) {
            return self.add_name(tree, id, name);
        }
        let mut file = OpenFile {
            subvolume,
            ino,
            attributes,
            kind,
            size: 0,
            name,
            link,
            nbytes: 0,
            is_compressed: false,
            is_incompressible: false,
            is_inline: false,
            extents: Record::new(tree, ino),
            has_put_aside: false,
            run: None,
            end: 0,
        };
        match body {
            Body::None => {}
            Body::Symlink(target) => self.symlink(&mut file, target)?,
            Body::Data { size, contents } => {
                file.size = size;
                match contents {
                    Contents::Whole {
                        parts,
                        is_incompressible,
                    } => {
                        for part in parts {
                            self.part(&mut file, part)?;
                        }
                        file.is_incompressible = is_incompressible;
                    }
                    Contents::Following => {
                        self.current = Some(file);
                        return Ok(());
                    }
                    Contents::Placed {
                        extents,
                        is_incompressible,
                    } => {
                        for extent in extents {
                            self.extent(&mut file, extent)?;
                        }
                        file.is_incompressible = is_incompressible;
                    }
                    Contents::Deferred(deferred) => {
                        let mut encoder = self.setup.coding.encoder(file.attributes.flags);
                        deferred.read(&mut encoder, &mut |part| self.part(&mut file, part))?;
                        file.is_incompressible = encoder.is_incompressible();
                    }
                }
            }
        }
        self.finish_file(file)
    }

    fn symlink(&self, file: &mut OpenFile, target: Vec<u8>) -> Result<(), FillError> {
        let max = self.max_item_bytes() - FILE_EXTENT_INLINE_START;
        if target.len() > max {
            return Err(FillError::TargetTooLong {
                path: self.path(&file.name.name),
                len: target.len(),
                max,
            });
        }
        file.size = target.len() as u64;
        file.nbytes = file.size;
        file.is_inline = true;
        let inline = Inline {
            compression: Compression::None,
            file_bytes: file.size,
            data: target,
        };
        put_inline(&mut file.extents, &inline);
        Ok(())
    }

    fn part(&mut self, file: &mut OpenFile, part: Part) -> Result<(), FillError> {
        let piece = match part {
            Part::Inline(inline) => {
                put_inline(&mut file.extents, &inline);
                file.nbytes = inline.file_bytes;
                file.is_inline = true;
                return Ok(());
            }
            Part::Piece(piece) => piece,
        };
        let mut placed = std::mem::take(&mut self.placed);
        self.data.place(&piece, &mut |extent| {
            placed.push(extent);
            Ok(())
        })?;
        for extent in placed.drain(..) {
            self.extent(file, extent)?;
        }
        self.placed = placed;
        Ok(())
    }

    fn extent(&mut self, file: &mut OpenFile, extent: PlacedExtent) -> Result<(), FillError> {
        if let Some(run) = &mut file.run
            && run.is_continued_by(&extent)
            && run.disk_bytes + extent.disk_bytes <= MAX_EXTENT_BYTES
        {
            run.disk_bytes += extent.disk_bytes;
            run.file_bytes += extent.file_bytes;
            return Ok(());
        }
        self.end_run(file)?;
        file.run = Some(extent);
        Ok(())
    }

    fn end_run(&mut self, file: &mut OpenFile) -> Result<(), FillError> {
        let Some(run) = file.run.take() else {
            return Ok(());
        };
        self.hole_until(file, run.file_offset);
        put_extent(&mut file.extents, &run);
        file.end = run.file_offset + run.file_bytes;
        file.nbytes += run.file_bytes;
        file.is_compressed |= run.compression != Compression::None;
        let subvolume = &mut self.subvolumes[file.subvolume].subvolume;
        subvolume.data_bytes += run.disk_bytes;
        self.stats.data_bytes += run.disk_bytes;
        self.extents.push(subvolume.id, file.ino, &run)?;
        if file.extents.len_bytes() > HELD_EXTENTS_BYTES {
            self.items.push(&file.extents)?;
            file.extents.reset(subvolume.id, file.ino);
            file.has_put_aside = true;
        }
        Ok(())
    }

    fn hole_until(&self, file: &mut OpenFile, offset: u64) {
        let incompat = self.setup.geometry.features.incompat;
        if offset > file.end && !incompat.contains(Incompat::NO_HOLES) {
            put_hole(&mut file.extents, file.end, offset - file.end);
        }
    }

    fn finish_file(&mut self, mut file: OpenFile) -> Result<(), FillError> {
        self.end_run(&mut file)?;
        if file.kind == FileKind::Regular && !file.is_inline {
            let sectorsize = u64::from(self.setup.geometry.sectorsize);
            let end = file.size.next_multiple_of(sectorsize);
            self.hole_until(&mut file, end);
        }
        self.stats.files += 1;
        let mut inode = self.inode(&file.attributes, file.size, file.nbytes);
        let mut flags = file.attributes.flags;
        flags.set(InodeFlags::COMPRESS, file.is_compressed);
        if file.is_incompressible {
            flags.insert(InodeFlags::NOCOMPRESS);
            flags.remove(InodeFlags::COMPRESS);
        }
        inode.flags = flags.bits().into();
        let tree = self.tree(file.subvolume);
        let more_names = file.link.filter(|(_, names)| *names > 1);
        self.scratch.reset(tree, file.ino);
        if more_names.is_none() {
            let Name { dir, index, name } = &file.name;
            self.scratch
                .item(KeyType::INODE_ITEM, 0, &[inode.as_bytes()]);
            put_name(&mut self.scratch, *dir, *index, name);
        }
        let max = self.max_item_bytes();
        if !put_xattrs(&mut self.scratch, &file.attributes.xattrs, max) {
            let path = self.path(&file.name.name);
            return Err(FillError::XattrsCollide { path });
        }
        // Extents put aside come between; the record must not span them.
        if file.has_put_aside {
            self.items.push(&file.extents)?;
        } else {
            self.scratch.append(&file.extents);
        }
        self.items.push(&self.scratch)?;
        if let Some((id, names)) = more_names {
            let linked = Linked {
                ino: file.ino,
                inode,
                names: vec![file.name],
                left: names - 1,
            };
            self.linked.insert((tree, id), linked);
        }
        Ok(())
    }

    fn add_name(&mut self, tree: RootId, id: LinkId, name: Name) -> Result<(), FillError> {
        let linked = self.linked.get_mut(&(tree, id)).expect("looked up before");
        linked.names.push(name);
        linked.left = linked.left.saturating_sub(1);
        if linked.left == 0
            && let Some(linked) = self.linked.remove(&(tree, id))
        {
            self.finish_linked(tree, linked)?;
        }
        Ok(())
    }

    fn finish_linked(&mut self, tree: RootId, mut linked: Linked) -> Result<(), FillError> {
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

impl PlacedExtent {
    /// Whether `next` begins where this one ends, in the file and on disk.
    pub(super) fn is_continued_by(&self, next: &PlacedExtent) -> bool {
        self.compression == Compression::None
            && next.compression == Compression::None
            && self.chunk == next.chunk
            && self.file_offset + self.file_bytes == next.file_offset
            && self.logical.0 + self.disk_bytes == next.logical.0
    }
}

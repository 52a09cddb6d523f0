//! A file during its conversion to items. Its contents arrive in parts, and its inode item is built at the end.
//!
//! Not here: names and directories (`filler`), the place of data (`data_space`).

use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileKind, InodeFlags};
use ubtrfs_format::key::KeyType;
use ubtrfs_format::limits;
use zerocopy::IntoBytes;

use super::links::Linked;
use super::{Filler, kind};
use crate::fill::data_space::PlacedExtent;
use crate::fill::encode::{Inline, Part};
use crate::fill::error::FillError;
use crate::fill::inode::{Name, put_extent, put_hole, put_inline, put_name, put_xattrs};
use crate::fill::item_sorter::Record;
use crate::fill::marks::DENSE;
use crate::fill::source::{Attributes, Body, Contents, LinkId};

/// Maximum size of a file's extent items in memory before they are passed to the sorter.
const HELD_EXTENTS_BYTES: usize = 64 << 10;
/// The kernel's limit for an extent.
pub(in crate::fill) const MAX_EXTENT_BYTES: u64 = 128 << 20;

/// A file that is being filled.
pub(super) struct OpenFile {
    subvolume: usize,
    ino: u64,
    attributes: Attributes,
    size: u64,
    name: Name,
    link: Option<(LinkId, u32)>,
    nbytes: u64,
    is_compressed: bool,
    pub(super) is_incompressible: bool,
    is_inline: bool,
    /// Extent items that were not passed to the sorter yet.
    extents: Record,
    has_put_aside: bool,
    /// The last extent, which may be extended.
    run: Option<PlacedExtent>,
    /// The end of the file's extents and holes so far.
    end: u64,
}

impl OpenFile {
    pub(super) fn new(
        tree: RootId,
        subvolume: usize,
        ino: u64,
        name: Name,
        attributes: Attributes,
        link: Option<(LinkId, u32)>,
    ) -> OpenFile {
        OpenFile {
            subvolume,
            ino,
            attributes,
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
        }
    }
}

impl Filler<'_, '_> {
    /// Adds the contents of a file, as far as the event contains them.
    pub(super) fn contents(&mut self, mut file: OpenFile, body: Body) -> Result<(), FillError> {
        let (size, contents) = match body {
            Body::None => return self.finish_file(file),
            Body::Symlink(target) => {
                self.symlink(&mut file, target)?;
                return self.finish_file(file);
            }
            Body::Data { size, contents } => (size, contents),
        };
        let checked = limits::check_file_size(size);
        checked.map_err(|limit| self.beyond(&file.name.name, limit))?;
        file.size = size;
        match contents {
            Contents::Following => {
                self.current = Some(file);
                return Ok(());
            }
            Contents::Whole {
                parts,
                is_incompressible,
            } => {
                for part in parts {
                    self.part(&mut file, part)?;
                }
                file.is_incompressible = is_incompressible;
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
        self.finish_file(file)
    }

    fn symlink(&self, file: &mut OpenFile, target: Vec<u8>) -> Result<(), FillError> {
        let nodesize = self.setup.geometry.nodesize as usize;
        let checked = limits::check_target(&target, nodesize);
        checked.map_err(|limit| self.beyond(&file.name.name, limit))?;
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

    pub(super) fn part(&mut self, file: &mut OpenFile, part: Part) -> Result<(), FillError> {
        let piece = match part {
            Part::Inline(inline) => {
                put_inline(&mut file.extents, &inline);
                file.nbytes = inline.file_bytes;
                file.is_inline = true;
                return Ok(self.watch.advance(inline.file_bytes)?);
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
        Ok(self.watch.advance(piece.file_bytes)?)
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

    pub(super) fn finish_file(&mut self, mut file: OpenFile) -> Result<(), FillError> {
        self.end_run(&mut file)?;
        if kind(&file.attributes) == FileKind::Regular && !file.is_inline {
            let sectorsize = u64::from(self.setup.geometry.sectorsize);
            let end = file.size.next_multiple_of(sectorsize);
            self.hole_until(&mut file, end);
        }
        self.stats.files += 1;
        let mut inode = self.inode(&file.attributes, file.size, file.nbytes);
        let mut flags = file.attributes.flags.difference(DENSE);
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
        // Extents in the sorter may be between these items in key order; a record must not span them (ITEMSORT-1).
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
            self.links.add(tree, id, linked)?;
        }
        Ok(())
    }
}

impl PlacedExtent {
    /// Returns whether `next` begins at the end of this extent, in the file and on disk.
    pub(in crate::fill) fn is_continued_by(&self, next: &PlacedExtent) -> bool {
        self.compression == Compression::None
            && next.compression == Compression::None
            && self.chunk == next.chunk
            && self.file_offset + self.file_bytes == next.file_offset
            && self.logical.0 + self.disk_bytes == next.logical.0
    }
}

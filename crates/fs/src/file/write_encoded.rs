//! Writing compressed data as it is.
//!
//! Not here: the check that the bytes decompress, and the fallback for data that cannot be stored this way.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FILE_EXTENT_INLINE_START, InodeFlags};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_storage::csum_tree::CsumShape;
use ubtrfs_storage::{DiskExtent, EditEstimate, FileId, Reservation, lock};

use super::Files;
use super::change::{end_of, note_write, read_file, refuse_flags};
use super::extent::{DiskPart, Extent, InlineExtent};
use super::extent_edit::ExtentEdit;
use super::extents::MAX_COMPRESSED_BYTES;
use super::write_back::{GROW_SECTORS, enter_extent_edit};
use crate::error::Result;
use crate::inode::{DelallocRequest, DelallocReservation, FileExtentsState, Inode};

/// Items per replaced extent: its remainders on both sides, and their references.
const REPLACED_ITEMS: u64 = 6;
/// The smallest sector: the data of a regular extent is padded to at least this.
const LEAST_SECTOR_BYTES: u64 = 4096;

/// Compressed data, and the range of it that belongs into the file.
#[derive(Clone, Debug)]
pub struct EncodedData<'a> {
    pub compression: Compression,
    /// With or without the padding to whole sectors.
    pub bytes: &'a [u8],
    /// Decompressed length.
    pub ram_bytes: u64,
    /// The range of the decompressed data that becomes the file's.
    pub part: Range<u64>,
}

impl EncodedData<'_> {
    fn part_len(&self) -> u64 {
        self.part.end - self.part.start
    }
}

impl Files {
    /// Stores compressed data as an extent of the file at `offset`, without recompressing it. Returns false,
    /// with nothing changed, if the file or the volume cannot take it this way.
    pub(crate) fn write_encoded(
        &self,
        id: FileId,
        offset: u64,
        data: &EncodedData<'_>,
    ) -> Result<bool> {
        nonblocking::check()?;
        let sectorsize = self.roots.sectorsize();
        if !is_storable(data, offset, sectorsize) {
            return Ok(false);
        }
        let end = end_of(offset, data.part_len())?;
        let inode = self.inodes.inode_to_change(id)?;
        refuse_flags(&inode, InodeFlags::IMMUTABLE)?;
        let disk_bytes = (data.bytes.len() as u64).next_multiple_of(sectorsize);
        let range = offset..end.next_multiple_of(sectorsize);
        let replaced = (range.end - range.start) / sectorsize + 1;
        let delalloc = self.inodes.reserve_delalloc(
            id.root,
            disk_bytes + GROW_SECTORS * sectorsize,
            EditEstimate::neighbours(REPLACED_ITEMS * replaced),
        )?;
        let mut extents = inode.extents.lock()?;
        self.write_back_locked(&inode, &mut extents)?;
        let write = EncodedWrite {
            files: self,
            inode: &inode,
            data,
            range,
            end,
        };
        let stored = write.store(&mut extents, delalloc)?;
        drop(extents);
        if stored && self.syncs_writes(&inode)? {
            self.fsync(&inode)?;
        }
        Ok(stored)
    }
}

/// Returns whether the data has the shape of a compressed extent.
fn is_storable(data: &EncodedData<'_>, offset: u64, sectorsize: u64) -> bool {
    let len = data.bytes.len() as u64;
    data.compression != Compression::None
        && !data.part.is_empty()
        && len > 0
        && len.next_multiple_of(sectorsize) <= MAX_COMPRESSED_BYTES
        && data.ram_bytes <= MAX_COMPRESSED_BYTES
        && len < data.ram_bytes
        && data.part.end <= data.ram_bytes
        && data.part.start.is_multiple_of(sectorsize)
        && offset.is_multiple_of(sectorsize)
}

/// A write of compressed data into a file whose extents are locked.
struct EncodedWrite<'a> {
    files: &'a Files,
    inode: &'a Arc<Inode>,
    data: &'a EncodedData<'a>,
    /// The range in the file, in whole sectors.
    range: Range<u64>,
    /// The end of the data in the file.
    end: u64,
}

impl EncodedWrite<'_> {
    fn store(
        &self,
        extents: &mut FileExtentsState,
        mut delalloc: DelallocReservation,
    ) -> Result<bool> {
        let sectorsize = self.files.roots.sectorsize();
        let item = read_file(self.inode)?;
        let size = item.size.get();
        let as_is = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        // Beyond its data, the last sector of a file must hold zeros, which a compressed extent does not
        // guarantee.
        let ends_file = self.end >= size || self.end.is_multiple_of(sectorsize);
        if item.flags().intersects(as_is) || !ends_file {
            return Ok(false);
        }
        let extent_edit = ExtentEdit::load(self.inode, sectorsize, self.range.clone())?;
        let reaches_out = extent_edit
            .overlapping(self.range.clone())
            .any(|(range, old)| matches!(old, Extent::Inline(_)) && range.end > self.range.end);
        if reaches_out {
            // EXTENT-EDIT-2
            return Ok(false);
        }
        extents.forget();
        if let Some(inline) = self.inline(size) {
            self.enter(extent_edit, Extent::Inline(inline), Vec::new())?;
            return Ok(true);
        }
        let grown = delalloc.split(GROW_SECTORS * sectorsize);
        let Some(disk) = self.allocate(&extent_edit, &mut delalloc)? else {
            return Ok(false);
        };
        // Grow the file only when there is space for the data: a refusal must change nothing.
        let extent_edit = if self.range.start > size {
            self.files
                .grow_locked(self.inode, extents, self.range.start, grown)
                .and_then(|()| ExtentEdit::load(self.inode, sectorsize, self.range.clone()))
        } else {
            Ok(extent_edit)
        };
        let stored = extent_edit.and_then(|extent_edit| self.store_at(disk, extent_edit));
        if stored.is_err() {
            let space = &self.files.inodes.transactions()?.space;
            space.release(disk.start, disk.len);
        }
        stored.map(|()| true)
    }

    /// Returns an inline extent if the data is a whole file and fits into an item.
    fn inline(&self, size: u64) -> Option<InlineExtent> {
        let sectorsize = self.files.roots.sectorsize();
        let nodesize = self.files.roots.superblock().nodesize.get() as usize;
        let room = leaf_data_size(nodesize) - ITEM_HEAD_SIZE - FILE_EXTENT_INLINE_START;
        let most = self.files.inodes.settings.max_inline_bytes();
        let len = self.data.bytes.len() as u64;
        let is_whole = self.range.start == 0
            && self.data.part == (0..self.data.ram_bytes)
            && self.end >= size
            && self.data.ram_bytes <= sectorsize;
        // Padded data is not from an inline extent. LZO has another format there.
        let is_small = len <= most.min(room as u64) && !len.is_multiple_of(LEAST_SECTOR_BYTES);
        (is_whole && is_small).then(|| InlineExtent {
            generation: 0,
            ram_bytes: self.data.ram_bytes,
            compression: self.data.compression,
            stored: self.data.bytes.into(),
        })
    }

    /// Allocates contiguous space. Returns None if no range is long enough.
    fn allocate(
        &self,
        extent_edit: &ExtentEdit,
        delalloc: &mut DelallocReservation,
    ) -> Result<Option<DiskExtent>> {
        let sectorsize = self.files.roots.sectorsize();
        let bytes = (self.data.bytes.len() as u64).next_multiple_of(sectorsize);
        let wanted = DelallocRequest {
            bytes,
            min_bytes: bytes,
            hint: match extent_edit.before(self.range.start) {
                Some(Extent::Disk(part)) => Some(part.end()),
                _ => None,
            },
        };
        match delalloc.allocate(&self.files.inodes, &wanted) {
            Ok((start, len)) => Ok(Some(DiskExtent { start, len })),
            Err(error) if error.is_no_space() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn store_at(&self, disk: DiskExtent, extent_edit: ExtentEdit) -> Result<()> {
        let sectorsize = self.files.roots.sectorsize();
        let mut bytes = self.data.bytes.to_vec();
        bytes.resize(disk.len as usize, 0);
        let extent = Extent::Disk(DiskPart {
            generation: 0,
            ram_bytes: self.data.ram_bytes.next_multiple_of(sectorsize),
            compression: self.data.compression,
            prealloc: false,
            disk,
            offset: self.data.part.start,
            len: self.range.end - self.range.start,
        });
        let manager = self.files.inodes.transactions()?;
        manager.counters.count_data(disk.len);
        manager.write_data(&[(disk.start, &bytes)])?;
        self.enter(extent_edit, extent, self.sums(&bytes))
    }

    fn sums(&self, bytes: &[u8]) -> Vec<u8> {
        let superblock = self.files.roots.superblock();
        let sectorsize = superblock.sectorsize.get() as usize;
        let mut sums = Vec::new();
        superblock
            .csum_type()
            .compute_sectors(bytes, sectorsize, &mut sums);
        sums
    }

    /// Inserts the extent into the file's extents. `sums` are the checksums of its sectors on disk.
    fn enter(&self, mut extent_edit: ExtentEdit, extent: Extent, sums: Vec<u8>) -> Result<()> {
        let files = self.files;
        let csum_tree = files.roots.tree(RootId::CSUM_TREE)?;
        let shape = CsumShape::of(&files.roots.superblock());
        let _state = lock::write(&self.inode.lock)?;
        let mut item = read_file(self.inode)?;
        note_write(&mut item);
        let txn = files.join_to_change_file(self.inode, Reservation::already_made())?;
        let generation = txn.transid().0;
        let made = match &extent {
            Extent::Disk(part) => Some(part.disk),
            _ => None,
        };
        extent_edit.replace(self.range.start, with_generation(extent, generation))?;
        if let Some(made) = made {
            txn.new_data_extent(made);
            for (key, value) in shape.items(made.start, &sums) {
                txn.insert(&csum_tree, key, value);
            }
        }
        files.use_compression(&txn, self.data.compression);
        let size = item.size.get();
        files.enter_size(
            &mut extent_edit,
            &mut item,
            size..self.end.max(size),
            generation,
        );
        enter_extent_edit(&txn, self.inode, &extent_edit, &mut item);
        Ok(())
    }
}

fn with_generation(extent: Extent, generation: u64) -> Extent {
    match extent {
        Extent::Inline(inline) => Extent::Inline(InlineExtent {
            generation,
            ..inline
        }),
        Extent::Disk(part) => Extent::Disk(DiskPart { generation, ..part }),
        Extent::Hole { len, .. } => Extent::Hole { generation, len },
    }
}

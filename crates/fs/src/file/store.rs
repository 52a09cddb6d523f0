//! Stores data on the devices, batched over many files.
//!
//! Data overwrites the old extent if that is allowed (`nocow`). Otherwise it goes to new extents, compressed
//! or not.
//!
//! Not here: which data is stored (`plan`), which ranges may be overwritten (`nocow`).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use parking_lot::RwLockReadGuard;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{FILE_EXTENT_INLINE_START, InodeFlags};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::space::NocowWrite;
use ubtrfs_storage::{DiskExtent, TransactionManager};

use super::Files;
use super::encode::Encoded;
use super::extent::{DiskPart, Extent, InlineExtent};
use super::extent_edit::ExtentEdit;
use super::plan::{RunGroup, StoragePlan};
use super::runs::Run;
use crate::error::{Error, Result};
use crate::inode::{
    DelallocRequest, DelallocReservation, FileExtentsState, Inode, MAX_EXTENT_BYTES, WINDOW_BYTES,
};

/// Bytes that one batch of writes gathers.
const BATCH_BYTES: u64 = 16 << 20;

/// A part of a file whose data is on the devices, or inline.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    Inline(InlineExtent),
    /// In a new extent.
    New {
        start: u64,
        part: DiskPart,
        csums: Vec<u8>,
    },
    /// In space that the file has already: preallocated space, or the second part of a new extent that was
    /// cut (SPLIT-INSERT-1).
    Reserved {
        start: u64,
        part: DiskPart,
        csums: Vec<u8>,
    },
}

/// The outcome of storing one file's data.
#[derive(Debug)]
pub(super) struct StoredFile<'a> {
    /// The stored extents of each group of the plan.
    pub(super) groups: Vec<Vec<Stored>>,
    /// The file's data did not compress: its inode gets the NOCOMPRESS flag.
    pub(super) incompressible: bool,
    /// Held until the items of the written data have been inserted.
    nocow: Option<Overwriting<'a>>,
    handles: Vec<NocowWrite>,
    /// The reservation, held until the items have been inserted.
    pub(super) delalloc: DelallocReservation,
}

/// A guard for writing in place. While it is held, no snapshot of the tree is made (NOCOW-3), and a deleted
/// tree is not freed (NOCOW-4).
#[derive(Debug)]
struct Overwriting<'a> {
    guard: Option<RwLockReadGuard<'a, ()>>,
    tree: &'a Tree,
    manager: &'a TransactionManager,
}

impl<'a> Overwriting<'a> {
    /// Begins overwriting in a tree. Returns None if a snapshot is being made, or the subvolume is deleted.
    fn begin(tree: &'a Tree, manager: &'a TransactionManager) -> Option<Overwriting<'a>> {
        let guard = tree.nocow_lock.try_read()?;
        tree.check_alive().ok()?;
        Some(Overwriting {
            guard: Some(guard),
            tree,
            manager,
        })
    }
}

impl Drop for Overwriting<'_> {
    fn drop(&mut self) {
        self.guard = None;
        // Pairs with the search for trees to clean. Either that search finds the lock free, or this thread
        // sees the deletion and wakes the cleaner.
        fence(Ordering::SeqCst);
        if self.tree.is_deleted() {
            self.manager.cleaner.wake();
        }
    }
}

impl Stored {
    pub(super) fn compression(&self) -> Compression {
        match self {
            Stored::Inline(inline) => inline.compression,
            Stored::New { part, .. } | Stored::Reserved { part, .. } => part.compression,
        }
    }

    /// Inserts it into the file's extents.
    pub(super) fn place(&self, extent_edit: &mut ExtentEdit, generation: u64) -> Result<()> {
        match self {
            Stored::Inline(inline) => {
                let inline = inline.clone();
                extent_edit.replace(
                    0,
                    Extent::Inline(InlineExtent {
                        generation,
                        ..inline
                    }),
                )
            }
            Stored::New { start, part, .. } => {
                let part = part.clone();
                extent_edit.replace(*start, Extent::Disk(DiskPart { generation, ..part }))
            }
            Stored::Reserved { start, part, .. } => {
                let part = part.clone();
                extent_edit.replace(*start, Extent::Disk(DiskPart { generation, ..part }))
            }
        }
    }

    /// Returns the newly allocated extent, if it has one.
    pub(super) fn new_extent(&self) -> Option<DiskExtent> {
        match self {
            Stored::New { part, .. } => Some(part.disk),
            _ => None,
        }
    }

    /// Returns its checksums, and the address of the first sector that they cover.
    pub(super) fn csums(&self) -> Option<(Logical, &[u8])> {
        match self {
            Stored::Inline(_) => None,
            Stored::New { part, csums, .. } => Some((part.disk.start, csums)),
            Stored::Reserved { part, csums, .. } => Some((part.logical(), csums)),
        }
    }
}

/// Data with its address.
struct PlacedWrite<'p> {
    /// Index of the file.
    file: usize,
    logical: Logical,
    bytes: Cow<'p, [u8]>,
    has_sums: bool,
}

impl PlacedWrite<'_> {
    fn request(&self) -> (Logical, &[u8]) {
        (self.logical, &self.bytes)
    }
}

/// Gathers the writes of many files.
pub(super) struct Store<'a, 'p> {
    files: &'a Files,
    stored: Vec<Result<StoredFile<'a>>>,
    writes: Vec<PlacedWrite<'p>>,
    bytes: u64,
}

impl<'a, 'p> Store<'a, 'p> {
    pub(super) fn new(files: &'a Files) -> Store<'a, 'p> {
        Store {
            files,
            stored: Vec::new(),
            writes: Vec::new(),
            bytes: 0,
        }
    }

    /// Finds addresses for one file's data, and writes the batch if it is large enough. A file whose plan
    /// failed passes None and gets an empty result.
    pub(super) fn add(
        &mut self,
        inode: &'a Inode,
        plan: Option<&'p StoragePlan<'_>>,
        extents: &mut FileExtentsState,
        delalloc: DelallocReservation,
    ) {
        let mut file = StoredFile {
            groups: Vec::new(),
            incompressible: false,
            nocow: None,
            handles: Vec::new(),
            delalloc,
        };
        let index = self.stored.len();
        let Some(plan) = plan else {
            self.stored.push(Ok(file));
            return;
        };
        let mut placer = Placer {
            files: self.files,
            inode,
            plan,
            extents,
            file: &mut file,
            writes: Vec::new(),
            hint: None,
        };
        let mut placed = Ok(());
        for group in &plan.groups {
            let mut stored = Vec::new();
            placed = placed.and_then(|()| placer.place_group(group, &mut stored));
            placer.file.groups.push(stored);
        }
        let writes = std::mem::take(&mut placer.writes);
        for (logical, bytes) in writes {
            self.bytes += bytes.len() as u64;
            self.writes.push(PlacedWrite {
                file: index,
                logical,
                bytes,
                has_sums: !plan.flags.contains(InodeFlags::NODATASUM),
            });
        }
        self.stored.push(Ok(file));
        match placed {
            Ok(()) if self.bytes >= BATCH_BYTES => self.write(),
            Ok(()) => {}
            Err(error) => self.fail(index, error),
        }
    }

    /// Writes the rest, and returns the result of each file.
    pub(super) fn finish(mut self) -> Vec<Result<StoredFile<'a>>> {
        self.write();
        self.stored
    }

    fn write(&mut self) {
        let writes = std::mem::take(&mut self.writes);
        let bytes = std::mem::take(&mut self.bytes);
        if writes.is_empty() {
            return;
        }
        if let Ok(manager) = self.files.inodes.transactions() {
            manager.counters.count_data(bytes);
        }
        let (summed, unsummed): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| write.has_sums);
        self.write_alike(&summed, |manager, writes| manager.write_data(writes));
        self.write_alike(&unsummed, |manager, writes| {
            manager.write_unsummed_data(writes)
        });
    }

    fn write_alike(
        &mut self,
        writes: &[PlacedWrite<'_>],
        write_with: impl Fn(&TransactionManager, &[(Logical, &[u8])]) -> ubtrfs_storage::Result<()>,
    ) {
        if writes.is_empty() {
            return;
        }
        let files = self.files;
        let write = |writes: &[_]| write_with(files.inodes.transactions()?, writes);
        let all: Vec<(Logical, &[u8])> = writes.iter().map(PlacedWrite::request).collect();
        if write(&all).is_ok() {
            return;
        }
        // The batch failed: write the pieces one by one to find the files that are affected.
        for one in writes {
            // The space of a failed file was released and may belong to another file by now.
            if self.stored[one.file].is_err() {
                continue;
            }
            if let Err(error) = write(&[one.request()]) {
                self.fail(one.file, error.into());
            }
        }
    }

    /// Marks a file as failed, and releases its new extents.
    fn fail(&mut self, index: usize, error: Error) {
        self.writes.retain(|write| write.file != index);
        if let Ok(file) = &self.stored[index]
            && let Ok(manager) = self.files.inodes.transactions()
        {
            for extent in file.groups.iter().flatten().filter_map(Stored::new_extent) {
                manager.space.release(extent.start, extent.len);
            }
            self.stored[index] = Err(error);
        }
    }
}

/// Assigns addresses to the data of one file.
struct Placer<'s, 'a, 'p> {
    files: &'a Files,
    inode: &'a Inode,
    plan: &'p StoragePlan<'p>,
    extents: &'s mut FileExtentsState,
    file: &'s mut StoredFile<'a>,
    writes: Vec<(Logical, Cow<'p, [u8]>)>,
    /// The preferred address of the next extent.
    hint: Option<Logical>,
}

impl Files {
    /// Returns the largest inline data, compressed or not, that an item can hold and the volume's options
    /// allow.
    fn most_inline_bytes(&self) -> u64 {
        let nodesize = self.roots.superblock().nodesize.get() as usize;
        let room = leaf_data_size(nodesize) - ITEM_HEAD_SIZE - FILE_EXTENT_INLINE_START;
        self.inodes.settings.max_inline_bytes().min(room as u64)
    }

    /// Returns whether uncompressed data of this size is stored inline.
    pub(crate) fn keeps_inline(&self, size: u64) -> bool {
        size <= self.most_inline_bytes() && size < self.roots.sectorsize()
    }
}

impl<'p> Placer<'_, '_, 'p> {
    fn place_group(&mut self, group: &'p RunGroup<'p>, stored: &mut Vec<Stored>) -> Result<()> {
        if let Some(inline) = self.inline(group) {
            stored.push(Stored::Inline(inline));
            return Ok(());
        }
        for run in &group.runs {
            self.hint = match group.extent_edit.before(run.range().start) {
                Some(Extent::Disk(part)) => Some(part.end()),
                _ => self.hint,
            };
            for range in self.place_nocow(run, &group.extent_edit, stored)? {
                self.place_new(run, range, stored)?;
            }
        }
        Ok(())
    }

    /// Returns the inline extent for the whole file, if it is small enough.
    fn inline(&self, group: &RunGroup<'_>) -> Option<InlineExtent> {
        let sectorsize = self.files.roots.sectorsize();
        let size = self.plan.size;
        let [run] = &group.runs[..] else {
            return None;
        };
        let nocow = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
        let alone = self.plan.groups.len() == 1
            && run.range() == (0..sectorsize)
            && size <= sectorsize
            && group
                .extent_edit
                .extents()
                .all(|(range, _)| range.start < sectorsize);
        if !alone || self.plan.flags.intersects(nocow) {
            return None;
        }
        let most = self.files.most_inline_bytes();
        let mut scratch = Vec::new();
        let data = &run.bytes(run.range(), &mut scratch)[..size as usize];
        let encoded = self.plan.encoder.encode(data, sectorsize as usize, true);
        let (compression, stored) = match encoded {
            Encoded::Compressed(kind, stored) if stored.len() as u64 <= most => (kind, stored),
            _ if self.files.keeps_inline(size) => (Compression::None, data.to_vec()),
            _ => return None,
        };
        Some(InlineExtent {
            generation: 0,
            ram_bytes: size,
            compression,
            stored: stored.into(),
        })
    }

    /// Overwrites data in place where that is allowed. Returns the other parts of the run.
    fn place_nocow(
        &mut self,
        run: &'p Run<'_>,
        extent_edit: &ExtentEdit,
        stored: &mut Vec<Stored>,
    ) -> Result<Vec<Range<u64>>> {
        let nocow = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
        if !self.plan.flags.intersects(nocow) {
            return Ok(vec![run.range()]);
        }
        if self.file.nocow.is_none() {
            self.file.nocow =
                Overwriting::begin(&self.inode.tree, self.files.inodes.transactions()?);
        }
        if self.file.nocow.is_none() {
            return Ok(vec![run.range()]);
        }
        let places = self.files.places_to_overwrite(
            self.inode,
            self.extents,
            extent_edit,
            self.plan.flags,
            run.range(),
        )?;
        let mut rest = Vec::new();
        let mut at = run.range().start;
        for place in places {
            let range = place.start..place.start + place.part.len;
            if at < range.start {
                rest.push(at..range.start);
            }
            at = range.end;
            self.write(place.part.logical(), run.slices(range.clone()));
            if place.part.prealloc {
                let part = DiskPart {
                    prealloc: false,
                    ..place.part
                };
                let csums = self.sums(run, range);
                stored.push(Stored::Reserved {
                    start: place.start,
                    part,
                    csums,
                });
            }
            self.file.handles.push(place.handle);
        }
        if at < run.range().end {
            rest.push(at..run.range().end);
        }
        Ok(rest)
    }

    fn place_new(
        &mut self,
        run: &'p Run<'_>,
        range: Range<u64>,
        stored: &mut Vec<Stored>,
    ) -> Result<()> {
        let sectorsize = self.files.roots.sectorsize();
        let encoder = &self.plan.encoder;
        // As in the kernel: a single sector within a file cannot save a sector, so compression is not tried.
        let alone = range.start == 0 && range.end >= self.plan.size;
        let small = range.end - range.start <= sectorsize && !alone;
        let mut plain = range.start..range.start;
        let mut scratch = Vec::new();
        while encoder.is_on() && !small && !self.file.incompressible && plain.end < range.end {
            let chunk = plain.end..range.end.min(plain.end + WINDOW_BYTES);
            let held = chunk.end.min(self.plan.size).saturating_sub(chunk.start);
            let data = &run.bytes(chunk.clone(), &mut scratch)[..held as usize];
            match encoder.encode(data, sectorsize as usize, false) {
                Encoded::Plain => plain.end = chunk.end,
                Encoded::Incompressible => self.file.incompressible = true,
                Encoded::Compressed(kind, bytes) => {
                    // Store the plain data before this chunk first, so that extents are allocated in file
                    // order.
                    self.place_plain(run, plain.clone(), stored)?;
                    plain = chunk.start..chunk.end;
                    if self.place_compressed(chunk, kind, bytes, stored)? {
                        plain.start = plain.end;
                    }
                }
            }
        }
        self.place_plain(run, plain.start..range.end, stored)
    }

    /// Stores compressed data. Returns false if there is no contiguous space for it.
    fn place_compressed(
        &mut self,
        chunk: Range<u64>,
        compression: Compression,
        bytes: Vec<u8>,
        stored: &mut Vec<Stored>,
    ) -> Result<bool> {
        let len = bytes.len() as u64;
        let (start, len) = match self.allocate(len, len) {
            Ok(space) => space,
            Err(error) if error.is_no_space() => return Ok(false),
            Err(error) => return Err(error),
        };
        let part = DiskPart {
            generation: 0,
            ram_bytes: chunk.end - chunk.start,
            compression,
            prealloc: false,
            disk: DiskExtent { start, len },
            offset: 0,
            len: chunk.end - chunk.start,
        };
        self.hint = Some(part.end());
        let superblock = self.files.roots.superblock();
        let mut csums = Vec::new();
        let sectorsize = superblock.sectorsize.get() as usize;
        superblock
            .csum_type()
            .compute_sectors(&bytes, sectorsize, &mut csums);
        stored.push(Stored::New {
            start: chunk.start,
            part,
            csums,
        });
        self.writes.push((start, Cow::Owned(bytes)));
        Ok(true)
    }

    fn place_plain(
        &mut self,
        run: &'p Run<'_>,
        range: Range<u64>,
        stored: &mut Vec<Stored>,
    ) -> Result<()> {
        let sectorsize = self.files.roots.sectorsize();
        let mut at = range.start;
        while at < range.end {
            let want = (range.end - at).min(MAX_EXTENT_BYTES);
            let (start, len) = self.allocate(want, sectorsize)?;
            // Free space is fragmented: this run becomes one more extent, whose items nobody has reserved.
            if len < want
                && let Err(error) = self.file.delalloc.count_piece(&self.files.inodes)
            {
                self.files.inodes.transactions()?.space.release(start, len);
                return Err(error);
            }
            let part = DiskPart {
                generation: 0,
                ram_bytes: len,
                compression: Compression::None,
                prealloc: false,
                disk: DiskExtent { start, len },
                offset: 0,
                len,
            };
            self.hint = Some(part.end());
            self.write(start, run.slices(at..at + len));
            let csums = self.sums(run, at..at + len);
            stored.push(Stored::New {
                start: at,
                part,
                csums,
            });
            at += len;
        }
        Ok(())
    }

    fn allocate(&mut self, bytes: u64, min_bytes: u64) -> Result<(Logical, u64)> {
        let wanted = DelallocRequest {
            bytes,
            min_bytes,
            hint: self.hint,
        };
        self.file.delalloc.allocate(&self.files.inodes, &wanted)
    }

    fn write(&mut self, logical: Logical, slices: impl Iterator<Item = &'p [u8]>) {
        let mut at = logical;
        for slice in slices {
            self.writes.push((at, Cow::Borrowed(slice)));
            at.0 += slice.len() as u64;
        }
    }

    /// Computes the checksums of `range`, unless the file has no checksums.
    fn sums(&self, run: &Run<'_>, range: Range<u64>) -> Vec<u8> {
        let mut sums = Vec::new();
        if !self.plan.flags.contains(InodeFlags::NODATASUM) {
            let superblock = self.files.roots.superblock();
            let sectorsize = superblock.sectorsize.get() as usize;
            for slice in run.slices(range) {
                superblock
                    .csum_type()
                    .compute_sectors(slice, sectorsize, &mut sums);
            }
        }
        sums
    }
}

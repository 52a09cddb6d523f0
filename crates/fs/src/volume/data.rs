//! Data of regular files.

use ubtrfs_storage::FileId;

use super::{OpenFile, Volume};
use crate::error::Result;
use crate::file::{CacheStats, Durable, EncodedData, Fallocate};
use crate::inode::WritebackErrors;

impl Volume {
    /// Clones: makes `len` bytes of `dst` from `dst_offset` on share the extents of `src` from `src_offset`
    /// on.
    ///
    /// A `len` of 0 means up to the end of `src`. Returns the number of cloned bytes.
    ///
    /// Errors:
    /// - offsets that are not whole sectors;
    /// - a length that is not, unless it ends at the source's end and not within the destination;
    /// - ranges that overlap or are beyond the source's end;
    /// - one file with checksums, the other without;
    /// - an immutable destination;
    /// - the errors of [`Volume::write`].
    pub fn clone_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<u64> {
        self.files
            .clone_range(src, src_offset, len, dst, dst_offset)
    }

    /// Deduplicates: makes two ranges with equal bytes share extents. Returns false if the bytes differ.
    ///
    /// An incomplete last sector is neither compared nor shared, unless the range ends with both files. Times
    /// do not change.
    ///
    /// Errors: as [`Volume::clone_range`], and a range beyond the destination's end.
    pub fn dedupe_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<bool> {
        self.files
            .dedupe_range(src, src_offset, len, dst, dst_offset)
    }

    /// Copies bytes from file to file, and shares extents where that is possible and worth it.
    ///
    /// Returns the number of copied bytes. It is less than `len` at the source's end, or if the rest failed.
    ///
    /// Errors: as [`Volume::read`] and [`Volume::write`], if nothing was copied; an immutable destination;
    /// overlapping ranges of one file.
    pub fn copy_range(
        &self,
        src: FileId,
        src_offset: u64,
        len: u64,
        dst: FileId,
        dst_offset: u64,
    ) -> Result<u64> {
        self.files.copy_range(src, src_offset, len, dst, dst_offset)
    }

    /// Preallocates, punches or zeroes `len` bytes from `offset` on. `len` is not 0.
    ///
    /// Errors: read-only volume or subvolume; no space; a range beyond the largest file size; an immutable
    /// file; an append-only file, unless space is preallocated.
    pub fn fallocate(&self, id: FileId, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.files.fallocate(id, mode, offset, len)
    }

    /// Fills `buf` from `offset`. Reads fewer bytes only at the end of the file.
    pub fn read(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.files.read(id, offset, buf)
    }

    /// Returns the first offset at or above `offset` that holds data, or None if only a hole follows.
    pub fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.files.seek_data(id, offset)
    }

    /// Returns the first offset at or above `offset` in a hole, at most the end of the file.
    ///
    /// Returns None if `offset` is not below the end.
    pub fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.files.seek_hole(id, offset)
    }

    /// Makes a file's data and all changes to its inode durable.
    ///
    /// Errors: a failed commit; a failed write-back of this file. The latter is returned until a call has
    /// returned it and later data of the file has been stored.
    pub fn fsync(&self, id: FileId) -> Result<()> {
        self.sync_file(id, Durable::All)
    }

    /// Makes a file's data durable, with all items needed to read it, but not its times.
    ///
    /// If only data was overwritten in place, this is just a flush of the devices.
    ///
    /// Errors: as [`Volume::fsync`].
    pub fn fdatasync(&self, id: FileId) -> Result<()> {
        self.sync_file(id, Durable::Data)
    }

    /// Makes `what` of a file durable.
    ///
    /// Errors: as [`Volume::fsync`].
    pub fn sync_file(&self, id: FileId, what: Durable) -> Result<()> {
        let inode = self.inodes.get(id)?;
        self.log.sync(&inode, what, WritebackErrors::report)
    }

    /// Sets the size of a regular file. A longer file is extended with zeros.
    ///
    /// Errors: read-only volume or subvolume; a size above the largest file size; no space to grow; an
    /// immutable or append-only file.
    pub fn truncate(&self, id: FileId, size: u64) -> Result<()> {
        self.files.truncate(id, size)
    }

    /// Sets the size of a file regardless of its flags, for a caller that undoes its own write.
    ///
    /// Errors: as [`Volume::truncate`].
    pub fn take_back_to(&self, id: FileId, size: u64) -> Result<()> {
        self.files.take_back_to(id, size)
    }

    /// Writes `bytes` at `offset` of a regular file. Either all or none are written, unless a device fails.
    ///
    /// All functions that write return only when the data is durable if the file has the flag SYNC.
    ///
    /// Errors: read-only volume or subvolume; no space; a range beyond the largest file size. For a file with
    /// the flag SYNC also the errors of [`Volume::fsync`].
    pub fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.write(id, offset, bytes)
    }

    /// Writes at the end of the file, atomically with finding that end. Returns the offset.
    ///
    /// Errors: as [`Volume::write`].
    pub fn append(&self, id: FileId, bytes: &[u8]) -> Result<u64> {
        self.files.append(id, bytes)
    }

    /// Writes whole sectors directly to the devices.
    ///
    /// Without the flag SYNC the data is not durable when it returns.
    ///
    /// Errors: as [`Volume::write`]; `offset` or length are not whole sectors.
    pub fn write_direct(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.write_direct(id, offset, bytes)
    }

    /// Writes compressed data as an extent at `offset` of a regular file, as it is. Returns false, with
    /// nothing changed, if that is not possible. The caller must then write it decompressed.
    ///
    /// It is not possible for files without checksums or copy-on-write, or without contiguous free space. The
    /// data must be an extent of whole sectors, or extend to the file's end. The caller guarantees that the
    /// bytes decompress: otherwise the file cannot be read.
    ///
    /// Errors: as [`Volume::write`]; an immutable file.
    pub fn write_encoded(&self, id: FileId, offset: u64, data: &EncodedData<'_>) -> Result<bool> {
        self.files.write_encoded(id, offset, data)
    }

    /// Sets the size of a file that is open for writing.
    ///
    /// As in the kernel, it may have become immutable since.
    ///
    /// Errors: as [`Volume::truncate`].
    pub fn truncate_open(&self, file: &OpenFile, size: u64) -> Result<()> {
        self.files.truncate_open(file.id(), size)
    }

    /// Returns the hits and misses of the cache of decompressed extents.
    pub fn decompressed_stats(&self) -> CacheStats {
        self.files.decompressed_stats()
    }
}

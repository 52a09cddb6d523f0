//! Data of regular files.

use ubtrfs_transaction::FileId;

use super::{OpenFile, Volume};
use crate::error::Result;
use crate::file::{CacheStats, Durable, EncodedData, Fallocate};
use crate::inode::WritebackErrors;

impl Volume {
    /// Has `len` bytes of `dst` from `dst_offset` on share the extents of `src` from `src_offset` on.
    ///
    /// With `len` 0 it shares all to the end of `src`. Returns how many bytes these were.
    ///
    /// Errors:
    /// - offsets that are not whole sectors;
    /// - a length that is not, unless it ends at the source's end and not within the destination;
    /// - ranges that overlap or pass the source's end;
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

    /// Has parts of two files that hold the same bytes share their extents. Returns false if the bytes differ.
    ///
    /// Of a length that is not whole sectors the rest is left out, neither compared nor shared, unless the range ends with
    /// both files. Times stay as they are.
    ///
    /// Errors: as [`Volume::clone_range`], and a range that passes the destination's end.
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

    /// Copies bytes from file to file, by sharing extents where that can be done and is worth it.
    ///
    /// Returns how many bytes it copied. These are less than `len` at the source's end, and where the rest failed.
    ///
    /// Errors: those of [`Volume::read`] and [`Volume::write`], if nothing was copied; an immutable destination; ranges
    /// of one file that overlap.
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

    /// Reserves, punches or zeroes `len` bytes from `offset` on, which is not 0.
    ///
    /// Errors: read-only volume or subvolume; no space; a range that no file may have; an immutable file, and an
    /// append-only one unless space is reserved.
    pub fn fallocate(&self, id: FileId, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.files.fallocate(id, mode, offset, len)
    }

    /// Fills `buf` from `offset`. Fewer bytes are read only at the end of the file.
    pub fn read(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.files.read(id, offset, buf)
    }

    /// Returns the first offset at or above `offset` that holds data, or None if there is none before the end.
    pub fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.files.seek_data(id, offset)
    }

    /// Returns the first offset at or above `offset` that holds no data, the end of the file at the latest.
    ///
    /// None if `offset` is not below the end.
    pub fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        self.files.seek_hole(id, offset)
    }

    /// Makes a file's data and all that was done to it durable.
    ///
    /// Errors: a failed commit; a failed write-back of this file. The latter is returned until a call has returned it
    /// and later data of the file has been stored.
    pub fn fsync(&self, id: FileId) -> Result<()> {
        let inode = self.inodes.get(id)?;
        self.log.sync(&inode, Durable::All, WritebackErrors::report)
    }

    /// Makes a file's data durable, with all that is needed to read it again: not its times.
    ///
    /// If nothing else was changed, as where data was overwritten in place, this is a flush of the devices.
    ///
    /// Errors: as [`Volume::fsync`].
    pub fn fdatasync(&self, id: FileId) -> Result<()> {
        let inode = self.inodes.get(id)?;
        self.log
            .sync(&inode, Durable::Data, WritebackErrors::report)
    }

    /// Makes a regular file `size` bytes long; new bytes read as zeros.
    ///
    /// Errors: read-only volume or subvolume; a size that no file may have; no space to grow; an immutable or append-only
    /// file.
    pub fn truncate(&self, id: FileId, size: u64) -> Result<()> {
        self.files.truncate(id, size)
    }

    /// Cuts or grows a file whatever flags it has, for a caller that takes back what it has just written.
    ///
    /// Errors: as [`Volume::truncate`].
    pub fn take_back_to(&self, id: FileId, size: u64) -> Result<()> {
        self.files.take_back_to(id, size)
    }

    /// Writes `bytes` at `offset` of a regular file, all or nothing unless the devices fail.
    ///
    /// This and the other ways to write make a file that has the flag SYNC durable before they return.
    ///
    /// Errors: read-only volume or subvolume; no space; a file that would be too large. For a file that has the flag
    /// SYNC also those of [`Volume::fsync`].
    pub fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.write(id, offset, bytes)
    }

    /// Writes at the end of the file, as it is at this call's turn. Returns the offset.
    ///
    /// Errors: as [`Volume::write`].
    pub fn append(&self, id: FileId, bytes: &[u8]) -> Result<u64> {
        self.files.append(id, bytes)
    }

    /// Writes whole sectors past the buffer.
    ///
    /// When it returns the devices have the data, though not durably without the flag SYNC.
    ///
    /// Errors: as [`Volume::write`]; `offset` or length not whole sectors.
    pub fn write_direct(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.write_direct(id, offset, bytes)
    }

    /// Writes compressed data at `offset` of a regular file: it becomes an extent as it is. Returns false, with nothing
    /// changed, where that cannot be; then the data must be written decompressed.
    ///
    /// That is so for files without checksums or copy-on-write, and for want of space in one piece. The data must be an
    /// extent of whole sectors, or reach to the file's end. The caller knows that the bytes decompress: a file with other
    /// bytes cannot be read.
    ///
    /// Errors: as [`Volume::write`]; an immutable file.
    pub fn write_encoded(&self, id: FileId, offset: u64, data: &EncodedData<'_>) -> Result<bool> {
        self.files.write_encoded(id, offset, data)
    }

    /// Makes a file that was opened for writing `size` bytes long.
    ///
    /// As in the kernel, a file that has become immutable since may be cut or grown.
    ///
    /// Errors: as [`Volume::truncate`].
    pub fn truncate_open(&self, file: &OpenFile, size: u64) -> Result<()> {
        self.files.truncate_open(file.id(), size)
    }

    /// Returns how often a decompressed extent was found in memory.
    pub fn decompressed_stats(&self) -> CacheStats {
        self.files.decompressed_stats()
    }
}

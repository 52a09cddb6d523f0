//! The data of a regular file: sends differences as writes, holes, and encoded extents.
//!
//! Invariants
//! - DATA-1: once its data has begun, the receiver's file is never longer than the new one. So writes may end at the
//!   file's end, and truncated data does not reappear.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use ubtrfs_format::compress::{Compression, MAX_EXTENT_BYTES, decompress};
use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{FileExtent, FileKind};
use ubtrfs_fs::{FileId, Volume};
use ubtrfs_tree::Item;

use super::clones::Clonable;
use super::error::{CorruptFile, Result, SendError};
use super::extents::{DiskRange, FileMap, Stored, item_range};
use super::inode_update::Update;
use super::job::Job;
use crate::format::{Command, StreamVersion};
use crate::scoped_thread;

/// Maximum bytes in one command, as in the kernel.
const V1_WRITE_BYTES: u64 = 48 << 10;
const V2_WRITE_BYTES: u64 = 128 << 10;
/// Number of bytes per read.
const READ_BYTES: u64 = 1 << 20;
/// From this size on, data is read on a second thread during the writes.
const READ_BESIDE_BYTES: u64 = 4 << 20;
/// The mode FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
const PUNCH_HOLE: u32 = 3;

/// Compressed data in an inline extent.
struct InlineData<'i> {
    compression: Compression,
    data: &'i [u8],
}

/// Returns a stream's number for a compression, which depends on the sector size for LZO.
fn stream_compression(compression: Compression, sectorsize: u64) -> u32 {
    match compression {
        Compression::None => 0,
        Compression::Zlib => 1,
        Compression::Zstd => 2,
        Compression::Lzo => 3 + sectorsize.trailing_zeros().saturating_sub(12),
    }
}

impl Job<'_> {
    /// Adds a differing extent item, and sends the data before it.
    pub(super) fn take_extent(
        &mut self,
        update: &mut Update,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<()> {
        if update.after.kind != FileKind::Regular {
            return Ok(());
        }
        self.cut(update)?;
        for item in old.into_iter().chain(new) {
            let (start, end) = item_range(self.new, item)?;
            if start >= update.data.grows_from {
                self.take_growth(update)?;
            }
            self.take_range(update, start..end)?;
        }
        Ok(())
    }

    /// Adds the range after the old end. An extent there differs even if its item is equal, because the old size cut
    /// it off.
    fn take_growth(&mut self, update: &mut Update) -> Result<()> {
        let range = update.data.grows_from..update.data.size;
        update.data.grows_from = u64::MAX;
        if range.is_empty() {
            Ok(())
        } else {
            self.take_range(update, range)
        }
    }

    fn take_range(&mut self, update: &mut Update, range: Range<u64>) -> Result<()> {
        let differing = &mut update.data.differing;
        if range.start <= differing.end {
            differing.end = differing.end.max(range.end);
            return Ok(());
        }
        let before = std::mem::replace(differing, range);
        self.send_range(update, before)
    }

    /// Sends the remaining data, and sets the size of the file.
    pub(super) fn finish_data(&mut self, update: &mut Update) -> Result<()> {
        if update.after.kind != FileKind::Regular {
            return Ok(());
        }
        self.cut(update)?;
        self.take_growth(update)?;
        let range = update.data.differing.clone();
        self.send_range(update, range)?;
        self.flush(update)?;
        if update.data.size_there != update.data.size {
            self.truncate(update)?;
        }
        Ok(())
    }

    /// DATA-1
    fn cut(&mut self, update: &mut Update) -> Result<()> {
        if update.data.size_there > update.data.size {
            self.truncate(update)
        } else {
            Ok(())
        }
    }

    fn truncate(&mut self, update: &mut Update) -> Result<()> {
        let size = update.data.size;
        update.data.size_there = size;
        update.data.touch();
        let path = &update.path;
        self.write(&Command::Truncate { path, size })
    }

    /// Sends the differences in a range of the file.
    fn send_range(&mut self, update: &mut Update, range: Range<u64>) -> Result<()> {
        let end = range.end.min(update.data.size);
        let mut at = range.start;
        if at >= end {
            return Ok(());
        }
        let mut new = FileMap::new(self.new, update.ino, at)?;
        let before = update.before.zip(self.old);
        let mut old = match before {
            Some((_, old)) => Some(FileMap::new(old, update.ino, at)?),
            None => None,
        };
        let old_size = before.map_or(0, |(before, _)| before.size());
        // Pieces of one extent are merged, even if the old file has a boundary in between.
        let mut held: Option<(DiskRange, Range<u64>)> = None;
        while at < end {
            let (stored, new_end) = new.at(at)?;
            let (was, old_end) = match &mut old {
                Some(old) if at < old_size => {
                    let (was, end) = old.at(at)?;
                    (was, end.min(old_size))
                }
                _ => (Stored::Nothing, u64::MAX),
            };
            let is_same = stored.is_same(&was);
            let to = match stored {
                // An inline extent differs as a whole.
                Stored::Inline { .. } if !is_same => new_end.min(end),
                _ => new_end.min(old_end).min(end),
            };
            if !is_same {
                match (&stored, &mut held) {
                    (Stored::Disk(next), Some((disk, range)))
                        if range.end == at && disk.is_followed_by(range, next) =>
                    {
                        range.end = to;
                    }
                    (Stored::Disk(disk), _) => {
                        self.send_held(update, held.take())?;
                        held = Some((*disk, at..to));
                    }
                    (stored, _) => {
                        self.send_held(update, held.take())?;
                        self.send_data(update, stored, at..to)?;
                    }
                }
            }
            at = to;
        }
        self.send_held(update, held)
    }

    fn send_held(
        &mut self,
        update: &mut Update,
        held: Option<(DiskRange, Range<u64>)>,
    ) -> Result<()> {
        held.map_or(Ok(()), |(disk, range)| {
            self.send_extent(update, disk, range)
        })
    }

    /// Sends a part of an extent: as clones if the receiver has it, otherwise as data.
    fn send_extent(
        &mut self,
        update: &mut Update,
        mut disk: DiskRange,
        mut range: Range<u64>,
    ) -> Result<()> {
        let sources = self.clone_sources(update, &disk)?;
        while !range.is_empty() {
            let to_sector = range.start.next_multiple_of(self.clones.sectorsize()) - range.start;
            let found = match to_sector {
                0 => sources.best(&disk, &range, update),
                // At an unaligned old end of the file: data up to the next sector cannot be cloned.
                _ => Clonable::Behind {
                    skip: to_sector.min(range.end - range.start),
                },
            };
            let len = match &found {
                Clonable::Now { len, .. } => *len,
                Clonable::Behind { skip } => *skip,
                Clonable::Never => range.end - range.start,
            };
            let part = range.start..range.start + len;
            match found {
                Clonable::Now { source, offset, .. } => {
                    self.flush(update)?;
                    if self.write_clone(update, source, offset, part.clone())? {
                        update.data.wrote_to(part.end)
                    } else {
                        self.send_data(update, &Stored::Disk(disk), part)?
                    }
                }
                _ => self.send_data(update, &Stored::Disk(disk), part)?,
            }
            range.start += len;
            disk.offset += len;
        }
        Ok(())
    }

    fn send_data(&mut self, update: &mut Update, stored: &Stored, range: Range<u64>) -> Result<()> {
        if self.options.no_data {
            return self.name_range(update, range);
        }
        match stored {
            Stored::Nothing => {
                if update.data.zeros.end != range.start {
                    self.flush(update)?;
                    update.data.zeros.start = range.start;
                }
                update.data.zeros.end = range.end;
                Ok(())
            }
            Stored::Disk(disk) if self.is_sent_encoded(update, disk, &range) => {
                self.flush(update)?;
                self.write_encoded(update, disk, range)
            }
            Stored::Inline { item, skip: 0 }
                if let Some(extent) = self.encoded_inline(item, &range) =>
            {
                self.flush(update)?;
                self.write_inline(update, &extent, range)
            }
            Stored::Inline { item, skip: 0 } if let Some(data) = plain_inline(item, &range) => {
                self.flush(update)?;
                update.data.wrote_to(range.end);
                self.write_part(update, range.start, data).map(drop)
            }
            Stored::Inline { .. } | Stored::Disk(_) => {
                if update.data.writes.end != range.start {
                    self.flush(update)?;
                    update.data.writes.start = range.start;
                }
                update.data.writes.end = range.end;
                Ok(())
            }
        }
    }

    /// Sends only the range of changed data.
    fn name_range(&mut self, update: &mut Update, range: Range<u64>) -> Result<()> {
        update.data.wrote_to(range.end);
        self.write(&Command::UpdateExtent {
            path: &update.path,
            offset: range.start,
            len: range.end - range.start,
        })
    }

    fn is_sent_encoded(&self, update: &Update, disk: &DiskRange, range: &Range<u64>) -> bool {
        let is_aligned = |offset: u64| offset.is_multiple_of(self.clones.sectorsize());
        self.options.compressed
            && is_aligned(range.start)
            && (is_aligned(range.end) || range.end == update.data.size)
            && disk.compression != Compression::None
            && disk.disk_bytes <= range.end - range.start
            && disk.disk_bytes < disk.ram_bytes
            && disk.ram_bytes <= MAX_EXTENT_BYTES as u64
            && range.end - range.start <= disk.ram_bytes.saturating_sub(disk.offset)
    }

    fn write_encoded(
        &mut self,
        update: &mut Update,
        disk: &DiskRange,
        range: Range<u64>,
    ) -> Result<()> {
        let snapshot = self.new.snapshot;
        let sectorsize = self.clones.sectorsize();
        let ino = InodeNr(update.ino);
        let data = snapshot.read_stored(ino, range.start, disk.extent, disk.disk_bytes)?;
        update.data.wrote_to(range.end);
        self.write(&Command::EncodedWrite {
            path: &update.path,
            offset: range.start,
            unencoded_file_len: range.end - range.start,
            unencoded_len: disk.ram_bytes,
            unencoded_offset: disk.offset,
            compression: stream_compression(disk.compression, sectorsize),
            encryption: Some(0),
            data: &data,
        })
    }

    /// Returns the compressed data of an inline extent that covers `range`, if it can be sent encoded.
    ///
    /// A receiver stores it without checking it, so it is checked here.
    fn encoded_inline<'i>(&self, item: &'i Item, range: &Range<u64>) -> Option<InlineData<'i>> {
        let FileExtent::Inline { head, data } = FileExtent::decode(item)? else {
            return None;
        };
        let compression = Compression::from_raw(head.compression)?;
        let (sectorsize, ram_bytes) = (self.clones.sectorsize(), head.ram_bytes.get());
        let is_meant = self.options.compressed
            && compression != Compression::None
            && *range == (0..ram_bytes)
            && ram_bytes <= sectorsize
            && (data.len() as u64) < ram_bytes;
        let mut plain = vec![0; if is_meant { ram_bytes as usize } else { 0 }];
        let is_sound = is_meant
            && decompress(compression, data, &mut plain, sectorsize as usize, true).is_ok();
        is_sound.then_some(InlineData { compression, data })
    }

    fn write_inline(
        &mut self,
        update: &mut Update,
        extent: &InlineData<'_>,
        range: Range<u64>,
    ) -> Result<()> {
        let sectorsize = self.clones.sectorsize();
        update.data.wrote_to(range.end);
        self.write(&Command::EncodedWrite {
            path: &update.path,
            offset: range.start,
            unencoded_file_len: range.end - range.start,
            unencoded_len: range.end - range.start,
            unencoded_offset: 0,
            compression: stream_compression(extent.compression, sectorsize),
            encryption: Some(0),
            data: extent.data,
        })
    }

    /// Sends the ranges that were held back.
    fn flush(&mut self, update: &mut Update) -> Result<()> {
        let zeros = std::mem::take(&mut update.data.zeros);
        if !zeros.is_empty() {
            self.write_zeros(update, zeros)?;
        }
        let writes = std::mem::take(&mut update.data.writes);
        if !writes.is_empty() {
            self.write_range(update, writes)?;
        }
        Ok(())
    }

    fn max_write(&self) -> u64 {
        match self.options.version {
            StreamVersion::V1 => V1_WRITE_BYTES,
            StreamVersion::V2 => V2_WRITE_BYTES,
        }
    }

    fn write_zeros(&mut self, update: &mut Update, range: Range<u64>) -> Result<()> {
        let path = &update.path;
        if self.options.version >= StreamVersion::V2 {
            update.data.touch();
            return self.write(&Command::Fallocate {
                path,
                mode: PUNCH_HOLE,
                offset: range.start,
                len: range.end - range.start,
            });
        }
        let zeros = vec![0; self.max_write() as usize];
        let mut offset = range.start;
        while offset < range.end {
            let len = self.max_write().min(range.end - offset);
            let data = &zeros[..len as usize];
            self.write(&Command::Write { path, offset, data })?;
            offset += len;
        }
        update.data.wrote_to(range.end);
        Ok(())
    }

    fn write_range(&mut self, update: &mut Update, range: Range<u64>) -> Result<()> {
        let snapshot = self.new.snapshot;
        let id = FileId::new(snapshot.id(), InodeNr(update.ino));
        update.data.wrote_to(range.end);
        let reads = Reads {
            volume: snapshot.volume(),
            id,
            range: range.clone(),
        };
        if range.end - range.start < READ_BESIDE_BYTES {
            return self.write_in_turn(update, reads);
        }
        let (full, to_send) = mpsc::sync_channel(1);
        let (sent, empty) = mpsc::channel();
        thread::scope(|scope| {
            let mut reads_there = reads.clone();
            let reader = scoped_thread::start(scope, "ubtrfs-read", move || {
                for buffer in [Vec::new(), Vec::new()].into_iter().chain(empty) {
                    let Some(part) = reads_there.next_part(buffer) else {
                        return;
                    };
                    // This fails if the sender has stopped.
                    if full.send(part).is_err() {
                        return;
                    }
                }
            });
            if reader.is_err() {
                return self.write_in_turn(update, reads);
            }
            // On an error both channels are dropped, which stops the thread.
            let (to_send, sent) = (to_send, sent);
            let mut at = range.start;
            for data in to_send {
                let data = data?;
                at += self.write_part(update, at, &data)?;
                // This fails if the reader has finished.
                let _ = sent.send(data);
            }
            Ok(())
        })
    }

    fn write_in_turn(&mut self, update: &Update, mut reads: Reads<'_>) -> Result<()> {
        let mut at = reads.range.start;
        let mut buffer = Vec::new();
        while let Some(data) = reads.next_part(buffer) {
            buffer = data?;
            at += self.write_part(update, at, &buffer)?;
        }
        Ok(())
    }

    /// Writes data that was read at an offset. Returns its length.
    fn write_part(&mut self, update: &Update, at: u64, data: &[u8]) -> Result<u64> {
        let len = data.len() as u64;
        let path = &update.path;
        for (number, data) in data.chunks(self.max_write() as usize).enumerate() {
            let offset = at + number as u64 * self.max_write();
            self.write(&Command::Write { path, offset, data })?;
        }
        Ok(len)
    }
}

/// Returns the data of an uncompressed inline extent that begins with `range`.
fn plain_inline<'i>(item: &'i Item, range: &Range<u64>) -> Option<&'i [u8]> {
    let FileExtent::Inline { head, data } = FileExtent::decode(item)? else {
        return None;
    };
    let is_plain = head.compression == Compression::None.raw()
        && head.encryption == 0
        && head.ram_bytes.get() == data.len() as u64;
    let len = usize::try_from(range.end - range.start).ok()?;
    data.get(..len).filter(|_| is_plain)
}

/// Reads of a file range, in parts.
#[derive(Clone)]
struct Reads<'a> {
    volume: &'a Volume,
    id: FileId,
    range: Range<u64>,
}

impl Reads<'_> {
    /// Reads the next part. Returns None after the last one.
    fn next_part(&mut self, mut buffer: Vec<u8>) -> Option<Result<Vec<u8>>> {
        let at = self.range.start;
        let len = READ_BYTES.min(self.range.end - at);
        if len == 0 {
            return None;
        }
        buffer.resize(len as usize, 0);
        self.range.start += len;
        Some(match self.volume.read(self.id, at, &mut buffer) {
            Ok(read) if read == buffer.len() => Ok(buffer),
            Ok(_) => Err(SendError::Corrupt {
                root: self.id.root,
                ino: self.id.ino,
                what: CorruptFile::ShortRead,
            }),
            Err(error) => Err(error.into()),
        })
    }
}

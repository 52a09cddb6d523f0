//! An open file with a position.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use ubtrfs_engine::{FileId, OpenFile};

use crate::error::{Error, Result};

/// An open file. It stays readable and writable after its name is gone.
#[derive(Debug)]
pub struct File {
    volume: Arc<ubtrfs_engine::Volume>,
    hold: OpenFile,
    position: u64,
}

impl File {
    pub(crate) fn open(volume: &Arc<ubtrfs_engine::Volume>, id: FileId) -> Result<File> {
        Ok(File {
            hold: volume.hold(id)?,
            volume: Arc::clone(volume),
            position: 0,
        })
    }

    /// Its handle.
    pub fn id(&self) -> FileId {
        self.hold.id()
    }

    /// Fills `buf` from `offset`; less only at the end of the file. The position stays.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.volume.read(self.id(), offset, buf)?)
    }

    /// Writes all of `buf` at `offset`; a gap before it reads as zeros. The position stays.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        Ok(self.volume.write(self.id(), offset, buf)?)
    }

    /// Cuts the file or lengthens it by zeros.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        Ok(self.volume.truncate(self.id(), len_bytes)?)
    }

    pub fn len(&self) -> Result<u64> {
        Ok(self.volume.attr(self.id())?.size)
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file durable, content and attributes. Of written data that was lost since the file was opened, as a
    /// device failed, each `File` is told once.
    pub fn sync_all(&self) -> Result<()> {
        Ok(self.hold.fsync()?)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.read_at(buf, self.position)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_at(buf, self.position)?;
        self.position += buf.len() as u64;
        Ok(buf.len())
    }

    /// Nothing is kept back here; durable is what `sync_all` or `Volume::sync` came after.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.len()?.checked_add_signed(delta),
        };
        let before = ubtrfs_engine::Error::Invalid("position");
        self.position = position.ok_or(Error::Engine(before))?;
        Ok(self.position)
    }
}

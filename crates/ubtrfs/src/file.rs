//! An open file with a position.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ubtrfs_engine::{Attr, FileId, OpenFile};

use crate::error::{Error, Naming, Result};
use crate::open::Engine;

/// An open file. It stays readable and writable after its name is gone, and keeps its volume open.
#[derive(Debug)]
pub struct File {
    /// Before the engine, which the last handle closes: letting go may change the volume.
    hold: OpenFile,
    engine: Engine,
    /// For messages.
    path: PathBuf,
    position: Mutex<u64>,
}

impl File {
    pub(crate) fn open(engine: &Engine, id: FileId, path: &Path) -> Result<File> {
        Ok(File {
            hold: engine.hold(id)?,
            engine: engine.clone(),
            path: path.to_owned(),
            position: Mutex::new(0),
        })
    }

    /// The handle for the engine.
    pub fn id(&self) -> FileId {
        self.hold.id()
    }

    /// Fills `buf` from `offset`; less only at the end of the file. The position stays.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = self.engine.read(self.id(), offset, buf);
        read.naming("read", &self.path)
    }

    /// Writes all of `buf` at `offset`; a gap before it reads as zeros. The position stays.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let written = self.engine.write(self.id(), offset, buf);
        written.naming("write", &self.path)
    }

    /// Cuts the file or lengthens it by zeros.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        let set = self.engine.truncate(self.id(), len_bytes);
        set.naming("set the length of", &self.path)
    }

    /// Attributes, the size with what is not committed yet.
    pub fn metadata(&self) -> Result<Attr> {
        let attr = self.engine.attr(self.id());
        attr.naming("read the attributes of", &self.path)
    }

    pub fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.size)
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file durable, content and attributes. Of written data that was lost since the file was opened, as a
    /// device failed, each `File` is told once.
    pub fn sync_all(&self) -> Result<()> {
        self.hold.fsync().naming("sync", &self.path)
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        // A number is sound after a panic as well.
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that share a file read one after another, each from where the one before it ended.
impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let len = self.read_at(buf, *position)?;
        *position += len as u64;
        Ok(len)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut position = self.position();
        self.write_at(buf, *position)?;
        *position += buf.len() as u64;
        Ok(buf.len())
    }

    /// Does nothing, as nothing is kept back here; `sync_all` and `Volume::sync` make durable what was written.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let wanted = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.len()?.checked_add_signed(delta),
        };
        let invalid = || Error::Engine(ubtrfs_engine::Error::Invalid("position"));
        *position = wanted.ok_or_else(invalid).naming("seek in", &self.path)?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

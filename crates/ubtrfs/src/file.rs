//! Open files with a position.

mod open_options;
mod xattrs;

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::{Fallocate, FileId, OpenFile, SetAttr};

use crate::error::{Cause, Caused, Naming, Result};
use crate::handle::Engine;
use crate::metadata::{FileTimes, Metadata};

pub use open_options::OpenOptions;
pub(crate) use xattrs::named_xattrs;

/// An open file, like [`std::fs::File`]. It stays readable and writable after its name is removed, and keeps its volume
/// open.
///
/// It implements [`Read`], [`Write`] and [`Seek`], also for `&File`, and [`FileExt`] for reads and writes at offsets.
/// Data is verified by its checksums when it is read. Threads that share a file read one after another, each from the
/// end of the previous read.
///
/// ```
/// use std::io::{Seek, Write};
/// use std::os::unix::fs::FileExt;
/// use ubtrfs::{OpenOptions, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let both = OpenOptions::new().read(true).write(true).create(true);
/// let mut file = volume.root().open_with("/file", &both)?;
/// file.write_all(b"first line\n")?;
/// file.write_all_at(b"F", 0)?;
/// let mut start = [0; 5];
/// file.read_exact_at(&mut start, 0)?;
/// assert_eq!(&start, b"First");
/// assert_eq!(file.stream_position()?, 11);
/// file.punch_hole(0, 4096)?;
/// assert_eq!(file.seek_data(0)?, None);
/// file.sync_all()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
}

/// The state that clones of a file share.
#[derive(Debug)]
struct Shared {
    /// `None` while it is being dropped.
    hold: Option<OpenFile>,
    engine: Engine,
    /// For messages.
    path: PathBuf,
    position: Mutex<u64>,
    reads: bool,
    writes: bool,
    appends: bool,
}

impl Drop for Shared {
    /// Releases the file before the engine, which the last handle closes: the release may change the volume.
    fn drop(&mut self) {
        let _entered = self.engine.enter();
        self.hold = None;
    }
}

impl File {
    pub(crate) fn new(engine: &Engine, hold: OpenFile, path: &Path, options: &OpenOptions) -> File {
        File {
            shared: Arc::new(Shared {
                hold: Some(hold),
                engine: engine.clone(),
                path: path.to_owned(),
                position: Mutex::new(0),
                reads: options.read,
                writes: options.writes(),
                appends: options.append,
            }),
        }
    }

    /// Returns the handle for the engine.
    pub(crate) fn id(&self) -> FileId {
        self.hold().id()
    }

    fn hold(&self) -> &OpenFile {
        let hold = self.shared.hold.as_ref();
        hold.expect("only the end of the file takes it away")
    }

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Truncates the file, or extends it with zeros. The position does not change.
    ///
    /// # Errors
    ///
    /// The file is not open for writing, the size exceeds the maximum of a file, or the volume is full.
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        let _entered = self.engine().enter();
        let set = if self.shared.writes {
            self.engine()
                .truncate_open(self.hold(), len_bytes)
                .map_err(Cause::from)
        } else {
            Err(Cause::InvalidOptions("the file is not open for writing"))
        };
        set.naming("set the length of", self.path())
    }

    /// Reads the metadata of the file, including uncommitted changes.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let metadata = Metadata::of_engine(self.engine(), self.id());
        metadata.naming("read the attributes of", self.path())
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    ///
    /// The file is immutable or append-only, or the volume or the subvolume is read-only.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let _entered = self.engine().enter();
        let set = SetAttr {
            mode: Some(permissions.mode()),
            ..SetAttr::default()
        };
        let set = self.engine().set_attr(self.id(), &set);
        set.naming("set the permissions of", self.path())
    }

    /// Sets times.
    ///
    /// # Errors
    ///
    /// As [`File::set_permissions`].
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        let _entered = self.engine().enter();
        let set = self.engine().set_attr(self.id(), &times.to_change());
        set.naming("set the times of", self.path())
    }

    /// Makes the file durable: content and attributes, and its name if it is new.
    ///
    /// # Errors
    ///
    /// A device fails. Each open file reports data loss since its open once.
    pub fn sync_all(&self) -> Result<()> {
        let _entered = self.engine().enter();
        self.hold().fsync().naming("sync", self.path())
    }

    /// Makes the content durable, and only the attributes that reading it needs.
    ///
    /// # Errors
    ///
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        let _entered = self.engine().enter();
        self.hold().fdatasync().naming("sync", self.path())
    }

    /// Opens the file again. Both handles share one position.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn try_clone(&self) -> Result<File> {
        let shared = Arc::clone(&self.shared);
        Ok(File { shared })
    }

    /// Reserves space for a range, so that writes to it do not fail for lack of space. Extends the file if the range
    /// ends after its end.
    ///
    /// # Errors
    ///
    /// The file is not open for writing, the volume is full, or the range is empty or exceeds the maximum of a file.
    pub fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let mode = Fallocate::Reserve { keep_size: false };
        self.fallocate("allocate space of", mode, offset, len_bytes)
    }

    /// Frees the space of a range, which then reads as zeros. The length does not change.
    ///
    /// # Errors
    ///
    /// The file is not open for writing, or the range is empty or exceeds the maximum of a file.
    pub fn punch_hole(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.fallocate("punch a hole in", Fallocate::PunchHole, offset, len_bytes)
    }

    /// Makes a range read as zeros, with space reserved for it. Extends the file if the range ends after its end.
    ///
    /// # Errors
    ///
    /// As [`File::allocate`].
    pub fn zero_range(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let mode = Fallocate::ZeroRange { keep_size: false };
        self.fallocate("zero a range of", mode, offset, len_bytes)
    }

    fn fallocate(
        &self,
        operation: &'static str,
        mode: Fallocate,
        offset: u64,
        len_bytes: u64,
    ) -> Result<()> {
        let _entered = self.engine().enter();
        let done = self.check_writes().and_then(|()| match len_bytes {
            0 => Err(EngineError::Invalid("length").into()),
            _ => Ok(self
                .engine()
                .fallocate(self.id(), mode, offset, len_bytes)?),
        });
        done.naming(operation, self.path())
    }

    /// Finds the first data at or after `offset`. Returns `None` if there is no data before the end.
    ///
    /// # Errors
    ///
    /// It is a directory, or the volume cannot be read.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.engine().seek_data(self.id(), offset);
        found.naming("seek data in", self.path())
    }

    /// Finds the first hole at or after `offset`; the end of the file counts as a hole. Returns `None` if `offset` is
    /// not before the end.
    ///
    /// # Errors
    ///
    /// As [`File::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        let found = self.engine().seek_hole(self.id(), offset);
        found.naming("seek a hole in", self.path())
    }

    /// Makes a range of this file share the data of a range of another file, or of another range of its own.
    ///
    /// # Errors
    ///
    /// - this file is not open for writing, or `from` not for reading
    /// - the files belong to different volumes, or only one of them has checksums
    /// - offsets that are not multiples of the sector size, 4 KiB by default
    /// - a length that is not, unless the range ends with `from` and not within this file
    /// - ranges that overlap
    pub fn clone_range(
        &self,
        from: &File,
        from_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<()> {
        let _entered = self.engine().enter();
        let cloned = self.check_source(from).and_then(|()| match len_bytes {
            0 => Ok(()),
            _ => {
                let (from, to) = (from.id(), self.id());
                self.engine()
                    .clone_range(from, from_offset, len_bytes, to, offset)?;
                Ok(())
            }
        });
        cloned.naming_both("clone a range of", from.path(), self.path())
    }

    /// Deduplicates ranges of two files: they share their space if their bytes are equal. Returns whether they are
    /// equal.
    ///
    /// # Errors
    ///
    /// As [`File::clone_range`].
    pub fn dedupe_range(
        &self,
        from: &File,
        from_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<bool> {
        let _entered = self.engine().enter();
        let shared = self.check_source(from).and_then(|()| {
            let (from, to) = (from.id(), self.id());
            Ok(self
                .engine()
                .dedupe_range(from, from_offset, len_bytes, to, offset)?)
        });
        shared.naming_both("deduplicate", from.path(), self.path())
    }

    fn check_source(&self, from: &File) -> Caused<()> {
        self.check_writes()?;
        from.check_reads()?;
        if self.engine().is_same(from.engine()) {
            Ok(())
        } else {
            Err(Cause::OtherVolume)
        }
    }

    fn check_reads(&self) -> Caused<()> {
        if self.shared.reads {
            Ok(())
        } else {
            Err(Cause::NotOpenFor("reading"))
        }
    }

    fn check_writes(&self) -> Caused<()> {
        if self.shared.writes {
            Ok(())
        } else {
            Err(Cause::NotOpenFor("writing"))
        }
    }

    fn read_from(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = self
            .check_reads()
            .and_then(|()| Ok(self.engine().read(self.id(), offset, buf)?));
        read.naming("read", self.path())
    }

    /// Returns the offset after the written bytes.
    pub(crate) fn write_to(&self, buf: &[u8], offset: u64) -> Result<u64> {
        let _entered = self.engine().enter();
        let written = self.check_writes().and_then(|()| {
            let at = if self.shared.appends {
                self.engine().append(self.id(), buf)?
            } else {
                self.engine().write(self.id(), offset, buf)?;
                offset
            };
            Ok(at.saturating_add(buf.len() as u64))
        });
        written.naming("write", self.path())
    }

    /// Returns the number of bytes from the position to the end.
    fn rest(&self) -> Caused<u64> {
        let len = self.engine().attr(self.id())?.size;
        Ok(len.saturating_sub(*self.position()))
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        // A number is valid even after a panic.
        let position = &self.shared.position;
        position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves memory for the rest of a file. A sparse file may be longer than any memory.
///
/// # Errors
///
/// There is not enough memory (`OutOfMemory`).
pub(crate) fn reserve(content: &mut Vec<u8>, len_bytes: u64) -> io::Result<()> {
    let len = usize::try_from(len_bytes).map_err(|_| ErrorKind::OutOfMemory)?;
    Ok(content.try_reserve_exact(len)?)
}

/// Reads and writes at offsets do not change the position. A write writes all bytes; a gap after the end reads as
/// zeros.
impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.read_from(buf, offset)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(buf, offset)?;
        Ok(buf.len())
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let len = self.read_from(buf, *position)?;
        *position += len as u64;
        Ok(len)
    }

    fn read_to_end(&mut self, content: &mut Vec<u8>) -> io::Result<usize> {
        let reserved = self.rest().and_then(|len| Ok(reserve(content, len)?));
        reserved.naming("read", self.path())?;
        self.take(u64::MAX).read_to_end(content)
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        content.as_slice().read_to_string(text)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut position = self.position();
        *position = self.write_to(buf, *position)?;
        Ok(buf.len())
    }

    /// Does nothing, because this type has no buffer. [`File::sync_all`] makes written data durable.
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
            SeekFrom::End(delta) => self.metadata()?.len().checked_add_signed(delta),
        };
        let wanted = wanted.ok_or(EngineError::Invalid("position"));
        *position = wanted.naming("seek in", self.path())?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_to_end(&mut self, content: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(content)
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(text)
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

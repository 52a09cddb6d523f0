//! Image files and block devices.
//!
//! Locks: readers hold a shared flock, a writer an exclusive one, so that two ubtrfs never collide; a loop
//! device is locked along with its image. The kernel takes no such lock: a writer refuses an image behind a
//! loop device, and claims a block device with O_EXCL. A reader may look at what the kernel has mounted, as
//! btrfs-progs allows, and is warned.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::access::Access;
use crate::block_device::{BlockDevice, DeviceRead, DeviceWrite, PastEnd};
use crate::block_discard;
use crate::error::{DeviceError, Holder, in_use, open_error};
use crate::file_clone;
use crate::lock::{Unlocking, lock, lock_backing, refuse_looped, refuse_siblings};
use crate::loop_device::{LoopDevice, loop_on};
use crate::uring::{self, Request};
use crate::waiting::{self, WouldWait};

#[cfg(test)]
mod tests;

/// What makes two paths the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DeviceIdentity {
    File { dev: u64, ino: u64 },
    Block { rdev: u64 },
}

#[derive(Debug)]
pub struct FileDevice {
    file: Unlocking,
    path: PathBuf,
    len_bytes: AtomicU64,
    /// Whether it can say what is there without waiting; true until it says that it cannot.
    tells_cached: AtomicBool,
    is_block: bool,
    holder: Option<Holder>,
    /// What keeps the kernel and others who claim devices away.
    claim: Mutex<Option<File>>,
    /// The image behind a loop device, locked.
    _backing: Option<Unlocking>,
}

impl FileDevice {
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        let failed = open_error(path);
        let metadata = std::fs::metadata(path).map_err(&failed)?;
        check_kind(path, &metadata)?;
        let is_block = metadata.file_type().is_block_device();
        let mut holder = None;
        let mut claim = None;
        if is_block {
            claim = claim_block(path, access, &mut holder)?;
        }
        let file = open_file(path, access, OFlags::empty()).map_err(&failed)?;
        lock(&file, path, access)?;
        match access {
            _ if is_block => {}
            Access::Read => holder = loop_on(&metadata, access).map(Holder::Loop),
            Access::Write => refuse_looped(&file, path)?,
        }
        if is_block && access == Access::Write {
            refuse_siblings(&metadata, path)?;
        }
        let backing = match is_block {
            true => lock_backing(&metadata, access)?,
            false => None,
        };
        if let Some(holder) = &holder {
            tracing::warn!(path = %path.display(), %holder, "reading a device that is in use");
        }
        Ok(FileDevice {
            claim: Mutex::new(claim),
            _backing: backing,
            ..Self::from_file(file, path, is_block, holder)?
        })
    }

    /// Lets others claim the block device, as the kernel does for a mount of it. Locks stay.
    pub fn release_claim(&self) {
        *self.claim.lock() = None;
    }

    /// Claims the block device again, after [`FileDevice::release_claim`].
    pub fn renew_claim(&self) -> Result<(), DeviceError> {
        let mut holder = None;
        *self.claim.lock() = match self.is_block {
            true => claim_block(&self.path, Access::Write, &mut holder)?,
            false => None,
        };
        Ok(())
    }

    /// Opens for a look that neither takes a lock nor asks who else is there.
    pub(crate) fn peek(path: &Path) -> Result<FileDevice, DeviceError> {
        let failed = open_error(path);
        let metadata = std::fs::metadata(path).map_err(&failed)?;
        check_kind(path, &metadata)?;
        let file = open_file(path, Access::Read, OFlags::empty()).map_err(&failed)?;
        Self::from_file(file, path, metadata.file_type().is_block_device(), None)
    }

    /// Makes an image of `len_bytes` zeros where there is nothing, and opens it for writing.
    pub fn create_new(path: &Path, len_bytes: u64) -> Result<FileDevice, DeviceError> {
        let failed = open_error(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(&failed)?;
        lock(&file, path, Access::Write)?;
        file.set_len(len_bytes).map_err(&failed)?;
        Self::from_file(file, path, false, None)
    }

    fn from_file(
        mut file: File,
        path: &Path,
        is_block: bool,
        holder: Option<Holder>,
    ) -> Result<FileDevice, DeviceError> {
        let len_bytes = file.seek(SeekFrom::End(0)).map_err(open_error(path))?;
        Ok(FileDevice {
            file: Unlocking(file),
            path: path.to_owned(),
            len_bytes: len_bytes.into(),
            tells_cached: AtomicBool::new(true),
            is_block,
            holder,
            claim: Mutex::new(None),
            _backing: None,
        })
    }

    /// Turns reads into requests that may be run along with those of other files.
    pub(crate) fn queue_reads<'a>(
        &'a self,
        reads: &'a mut [DeviceRead<'_>],
        requests: &mut Vec<Request<'a>>,
    ) {
        for read in reads {
            read.result = PastEnd::check(read.offset, read.buf.len() as u64, self.len_bytes());
            if read.result.is_ok() {
                let buffer = uring::Buffer::Read(read.buf);
                let result = &mut read.result;
                requests.push(Request::new(&self.file, read.offset, buffer, result));
            }
        }
    }

    /// Reads what the page cache has, all of it or none.
    fn read_cached(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() && self.tells_cached.load(Ordering::Relaxed) {
            let rest = &mut [IoSliceMut::new(&mut buf[done..])];
            let at = offset + done as u64;
            match rustix::io::preadv2(&*self.file, rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    tracing::debug!(path = %self.path.display(), "cannot tell what is cached");
                    self.tells_cached.store(false, Ordering::Relaxed);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        match done == buf.len() {
            true => Ok(()),
            false => Err(WouldWait.into()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `len` bytes at `offset` be those of another file, without a copy.
    ///
    /// Only where one file system holds both files and can share blocks, in whole blocks of it. Nothing has
    /// changed after an error.
    pub fn clone_range(
        &self,
        source: BorrowedFd<'_>,
        source_offset: u64,
        len: u64,
        offset: u64,
    ) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        file_clone::clone_range(&self.file, source, source_offset, len, offset)
    }

    /// Attaches a loop device to an image.
    pub fn attach_loop(&self, access: Access) -> io::Result<LoopDevice> {
        LoopDevice::attach(&self.file, access)
    }

    /// Whether it is a block device rather than an image file.
    pub fn is_block(&self) -> bool {
        self.is_block
    }
}

pub(crate) fn identity(path: &Path) -> io::Result<DeviceIdentity> {
    let metadata = std::fs::metadata(path)?;
    Ok(if metadata.file_type().is_block_device() {
        DeviceIdentity::Block {
            rdev: metadata.rdev(),
        }
    } else {
        DeviceIdentity::File {
            dev: metadata.dev(),
            ino: metadata.ino(),
        }
    })
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), DeviceError> {
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() || file_type.is_block_device() {
        return Ok(());
    } else if file_type.is_dir() {
        "a directory"
    } else if file_type.is_char_device() {
        "a character device"
    } else if file_type.is_fifo() {
        "a pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "something else"
    };
    Err(DeviceError::Kind {
        path: path.to_owned(),
        kind,
    })
}

fn open_file(path: &Path, access: Access, flags: OFlags) -> io::Result<File> {
    // Should the path have become a pipe since it was checked, opening it must not wait. Left set, the
    // flag would make io_uring give up on reads that have to wait.
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::Write)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// A writer keeps the claim; a reader only asks whether it could have it.
fn claim_block(
    path: &Path,
    access: Access,
    holder: &mut Option<Holder>,
) -> Result<Option<File>, DeviceError> {
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
    match open_file(path, Access::Read, OFlags::EXCL) {
        Ok(claim) => Ok((access == Access::Write).then_some(claim)),
        Err(error) if is_busy(&error) && access == Access::Write => {
            Err(in_use(path, Holder::Kernel))
        }
        Err(error) if is_busy(&error) => {
            *holder = Some(Holder::Kernel);
            Ok(None)
        }
        Err(error) => Err(open_error(path)(error)),
    }
}

impl BlockDevice for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        PastEnd::check(offset, buf.len() as u64, self.len_bytes())?;
        match waiting::is_forbidden() {
            true => self.read_cached(buf, offset),
            false => self.file.read_exact_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        PastEnd::check(offset, buf.len() as u64, self.len_bytes())?;
        self.file.write_all_at(buf, offset)
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        if waiting::is_forbidden() {
            for read in reads {
                read.result = self.read_at(read.buf, read.offset);
            }
            return;
        }
        let mut requests = Vec::with_capacity(reads.len());
        self.queue_reads(reads, &mut requests);
        uring::run(&mut requests);
    }

    fn write_batch(&self, writes: &mut [DeviceWrite<'_>]) {
        let mut requests = Vec::with_capacity(writes.len());
        for write in writes {
            write.result = PastEnd::check(write.offset, write.buf.len() as u64, self.len_bytes());
            if write.result.is_ok() {
                let buffer = uring::Buffer::Write(write.buf);
                let result = &mut write.result;
                requests.push(Request::new(&self.file, write.offset, buffer, result));
            }
        }
        uring::run(&mut requests);
    }

    fn as_file(&self) -> Option<&FileDevice> {
        Some(self)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        if self.is_block {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.set_len(len_bytes)?;
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        if len == 0 {
            return Ok(());
        }
        if self.is_block {
            return block_discard::discard(&self.file, offset, len);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&*self.file, flags, offset, len)?)
    }
}

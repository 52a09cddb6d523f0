//! Image files and block devices.
//!
//! Locks: readers take a shared flock and a writer an exclusive one, so that ubtrfs processes never conflict. A loop
//! device is locked together with its image. The kernel takes no flock. So a writer rejects an image that backs a
//! loop device, and claims a block device with O_EXCL. A reader may read a volume that the kernel has mounted, as in
//! btrfs-progs, with a warning.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use crate::access::Access;
use crate::block_device::{BlockDevice, DeviceDiscard, DeviceRead, PastEnd};
use crate::block_discard;
use crate::claim::DeviceClaim;
use crate::discard_geometry::{DiscardGeometry, queue_attribute};
use crate::error::{DeviceError, Holder, open_error};
use crate::file_clone;
use crate::lock::{Unlocking, lock, lock_backing, refuse_looped, refuse_siblings};
use crate::loop_device::loop_on;
use crate::nonblocking::{self, WouldBlock};
use crate::uring::{self, Request};

#[cfg(test)]
mod tests;

/// Zeros for filling holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The identity of a device, equal for all of its paths.
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
    /// Whether the file system supports reads of cached data only (RWF_NOWAIT). Assumed until the first such read
    /// fails.
    tells_cached: AtomicBool,
    is_block: bool,
    /// Determined on first use.
    discard_geometry: OnceLock<Option<DiscardGeometry>>,
    holder: Option<Holder>,
    /// The exclusive claim on a block device.
    claim: Option<DeviceClaim>,
    /// The locked image behind a loop device.
    _backing: Option<Unlocking>,
}

impl FileDevice {
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, DeviceError> {
        let failed = open_error(path);
        let metadata = std::fs::metadata(path).map_err(&failed)?;
        check_kind(path, &metadata)?;
        let is_block = metadata.file_type().is_block_device();
        let (claim, mut holder) = if is_block {
            let (claim, holder) = DeviceClaim::open(path, access)?;
            (Some(claim), holder)
        } else {
            (None, None)
        };
        let file = access.open(path, OFlags::empty()).map_err(&failed)?;
        lock(&file, path, access)?;
        match access {
            _ if is_block => {}
            Access::Read => holder = loop_on(&metadata, access).map(Holder::Loop),
            Access::Write => refuse_looped(&file, path)?,
        }
        if is_block && access == Access::Write {
            refuse_siblings(&metadata, path)?;
        }
        let backing = if is_block {
            lock_backing(&metadata, access)?
        } else {
            None
        };
        if let Some(holder) = &holder {
            tracing::warn!(path = %path.display(), %holder, "reading a device that is in use");
        }
        Ok(FileDevice {
            claim,
            _backing: backing,
            ..Self::from_file(file, path, is_block, holder)?
        })
    }

    /// Opens a device for reading without a lock and without a check for other users. Concurrent writes are possible,
    /// so that reads may be inconsistent.
    ///
    /// # Errors
    ///
    /// The device cannot be opened, or is neither a file nor a block device.
    pub fn peek(path: &Path) -> Result<FileDevice, DeviceError> {
        let failed = open_error(path);
        let metadata = std::fs::metadata(path).map_err(&failed)?;
        check_kind(path, &metadata)?;
        let file = Access::Read.open(path, OFlags::empty()).map_err(&failed)?;
        Self::from_file(file, path, metadata.file_type().is_block_device(), None)
    }

    /// Creates an image of `len_bytes` zeros and opens it for writing. The file must not exist.
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
            file: Unlocking::new(file),
            path: path.to_owned(),
            len_bytes: len_bytes.into(),
            tells_cached: AtomicBool::new(true),
            is_block,
            discard_geometry: OnceLock::new(),
            holder,
            claim: None,
            _backing: None,
        })
    }

    /// Returns whether it is a zoned device that only accepts sequential writes.
    pub fn is_host_managed(&self) -> bool {
        let zoned = if self.is_block {
            self.file.metadata().ok()
        } else {
            None
        };
        zoned
            .and_then(|metadata| queue_attribute(metadata.rdev(), "zoned"))
            .is_some_and(|zoned| zoned == "host-managed")
    }

    /// Reads from the page cache. Fails with `WouldBlock` unless all of the data is cached.
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
        if done == buf.len() {
            Ok(())
        } else {
            Err(WouldBlock.into())
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a block device, as opposed to an image file.
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

/// Converts reads of a file into requests that can run in one batch with other files' requests.
pub(crate) fn queue_reads<'a>(
    file: &'a File,
    len_bytes: u64,
    reads: &'a mut [DeviceRead<'_>],
    requests: &mut Vec<Request<'a>>,
) {
    for read in reads {
        read.result = PastEnd::check(read.offset, read.buf.len() as u64, len_bytes);
        if read.result.is_ok() {
            let result = &mut read.result;
            requests.push(Request::read(file, read.offset, read.buf, result));
        }
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
        if nonblocking::is_set() {
            self.read_cached(buf, offset)
        } else {
            self.file.read_exact_at(buf, offset)
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        PastEnd::check(offset, buf.len() as u64, self.len_bytes())?;
        self.file.write_all_at(buf, offset)
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<u64> {
        PastEnd::check(offset, len, self.len_bytes())?;
        if self.is_block {
            return Ok(0);
        }
        let (mut at, end, mut filled) = (offset, offset + len, 0);
        while at < end {
            // Seeking is safe: all reads and writes use explicit offsets.
            let mut hole = rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Hole(at))?;
            if hole >= end {
                break;
            }
            at = match rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Data(hole)) {
                Ok(data) => data.min(end),
                // There is no data after the hole.
                Err(Errno::NXIO) => end,
                Err(errno) => return Err(errno.into()),
            };
            while hole < at {
                let zeros = &ZEROS[..(at - hole).min(ZEROS.len() as u64) as usize];
                self.file.write_all_at(zeros, hole)?;
                hole += zeros.len() as u64;
                filled += zeros.len() as u64;
            }
        }
        Ok(filled)
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        if nonblocking::is_set() {
            for read in reads {
                read.result = self.read_at(read.buf, read.offset);
            }
            return;
        }
        let mut requests = Vec::with_capacity(reads.len());
        queue_reads(&self.file, self.len_bytes(), reads, &mut requests);
        uring::run(&mut requests);
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn claim(&self) -> Option<&DeviceClaim> {
        self.claim.as_ref()
    }

    fn clone_range(
        &self,
        source: BorrowedFd<'_>,
        source_offset: u64,
        len: u64,
        offset: u64,
    ) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        file_clone::clone_range(&self.file, source, source_offset, len, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        if self.is_block {
            // The device may have grown since it was opened. Seeking is safe, as in `fill_holes`.
            let found = rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::End(0))?;
            self.len_bytes.store(found, Ordering::Relaxed);
            return if len_bytes <= found {
                Ok(())
            } else {
                Err(io::ErrorKind::Unsupported.into())
            };
        }
        self.file.set_len(len_bytes)?;
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        *self.discard_geometry.get_or_init(|| {
            if self.is_block {
                DiscardGeometry::of_block_device(&self.file)
            } else {
                DiscardGeometry::of_image(&self.file, self.len_bytes())
            }
        })
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = retry_on_intr(|| {
            if self.is_block {
                block_discard::discard(&self.file, offset, len)
            } else {
                rustix::fs::fallocate(&*self.file, flags, offset, len)
            }
        });
        Ok(done?)
    }

    fn discard_batch(&self, discards: &mut [DeviceDiscard]) {
        // io_uring would punch holes in an image on worker threads, which only contend for the file's lock.
        if !self.is_block {
            for discard in discards {
                discard.result = self.discard(discard.offset, discard.len);
            }
            return;
        }
        let mut requests = Vec::with_capacity(discards.len());
        for DeviceDiscard {
            offset,
            len,
            result,
        } in discards
        {
            *result = PastEnd::check(*offset, *len, self.len_bytes());
            if result.is_ok() {
                requests.push(Request::discard(&self.file, *offset, *len, result));
            }
        }
        uring::run(&mut requests);
    }
}

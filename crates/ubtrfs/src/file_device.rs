//! Files and block devices of the host, as devices that a program opens itself.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use ubtrfs_device::{
    Access, BlockDevice, DeviceClaim, DeviceDiscard, DeviceRead, DeviceWrite, DiscardGeometry,
    FileDevice as Lower, Holder, empty_device,
};

use crate::error::{Cause, Naming, Result};

/// A file or block device of the host, locked as [`Volume::open`](crate::Volume::open) does.
///
/// ```
/// use std::sync::Arc;
/// use ubtrfs::{BlockDevice, DeviceAccess, FileDevice, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// Volume::create(&path, 1 << 30)?.close()?;
/// let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&path, DeviceAccess::Read)?);
/// let volume = Volume::builder().read_only(true).open_devices(vec![(path, device)])?;
/// assert_eq!(volume.root().read_dir("/")?.count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileDevice(Lower);

impl FileDevice {
    /// Opens a file or block device.
    ///
    /// # Errors
    ///
    /// - it does not exist (`NotFound`), or is neither a file nor a block device (`InvalidInput`)
    /// - it is in use (`ResourceBusy`); [`Error::holder`](crate::Error::holder) has the details
    /// - it is opened for writing, and is a zoned device that only supports sequential writes (`Unsupported`)
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<FileDevice> {
        let path = path.as_ref();
        let opened = Lower::open(path, access).map_err(Cause::from);
        let opened = opened.and_then(|device| {
            if access == Access::Write && device.is_host_managed() {
                Err(Cause::Zoned)
            } else {
                Ok(FileDevice(device))
            }
        });
        opened.naming("open", path)
    }

    /// Opens a file or block device for reading, without a lock and without checking for other users. They may write at
    /// the same time, so the bytes may be of different times.
    pub(crate) fn peek(path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let opened = Lower::peek(path).map_err(Cause::from);
        opened.map(FileDevice).naming("open", path)
    }

    /// Creates an image of `len_bytes` zeros, and opens it for writing.
    ///
    /// # Errors
    ///
    /// A file already exists at `path` (`AlreadyExists`), or it cannot be created.
    pub fn create_new(path: impl AsRef<Path>, len_bytes: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        let made = Lower::create_new(path, len_bytes).map_err(Cause::from);
        made.map(FileDevice).naming("create", path)
    }

    /// Returns the path with which it was opened.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Describes the apparent contents of the device for display, such as a file system or a partition table. A new
    /// volume would destroy them. Returns `None` if no contents are recognized.
    ///
    /// ```
    /// use ubtrfs::{DeviceAccess, FileDevice, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let path = folder.path().join("volume.img");
    /// let device = FileDevice::create_new(&path, 1 << 30)?;
    /// assert_eq!(device.signature()?, None);
    /// drop(device);
    /// # std::fs::remove_file(&path).expect("it is there");
    /// Volume::create(&path, 1 << 30)?.close()?;
    /// let device = FileDevice::open(&path, DeviceAccess::Write)?;
    /// assert!(device.signature()?.is_some_and(|found| found.contains("btrfs")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn signature(&self) -> Result<Option<String>> {
        let found = ubtrfs_device::find_signature(&self.0).naming("read", self.path())?;
        Ok(found.map(|signature| signature.to_string()))
    }

    /// Returns whether it is a block device, as opposed to a file.
    ///
    /// ```
    /// use ubtrfs::FileDevice;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let path = folder.path().join("volume.img");
    /// assert!(!FileDevice::create_new(&path, 1 << 30)?.is_block());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_block(&self) -> bool {
        self.0.is_block()
    }

    /// Erases superblocks and other signatures, durably, as for a device that joins a volume. With `discard`, all
    /// contents are discarded.
    ///
    /// ```
    /// use ubtrfs::{DeviceAccess, FileDevice, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let path = folder.path().join("volume.img");
    /// Volume::create(&path, 1 << 30)?.close()?;
    /// let device = FileDevice::open(&path, DeviceAccess::Write)?;
    /// device.erase(true)?;
    /// assert_eq!(device.signature()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// It cannot be read or written.
    pub fn erase(&self, discard: bool) -> Result<()> {
        let len_bytes = self.0.len_bytes();
        let erased = empty_device(&self.0, self.path(), len_bytes, discard);
        erased.naming("erase", self.path())
    }
}

impl BlockDevice for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn holder(&self) -> Option<&Holder> {
        self.0.holder()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<u64> {
        self.0.fill_holes(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        self.0.resize(len_bytes)
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.0.discard_geometry()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }

    fn discard_batch(&self, discards: &mut [DeviceDiscard]) {
        self.0.discard_batch(discards);
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        self.0.read_batch(reads);
    }

    fn file(&self) -> Option<&File> {
        self.0.file()
    }

    fn claim(&self) -> Option<&DeviceClaim> {
        self.0.claim()
    }

    fn clone_range(
        &self,
        source: BorrowedFd<'_>,
        source_offset: u64,
        len: u64,
        offset: u64,
    ) -> io::Result<()> {
        self.0.clone_range(source, source_offset, len, offset)
    }

    fn write_batch(&self, writes: &mut [DeviceWrite<'_>]) {
        self.0.write_batch(writes);
    }
}

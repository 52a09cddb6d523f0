//! Opening and making volumes.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::{BlockDevice, FileDevice, MemDevice};
use ubtrfs_engine::{Compress, FileId, OpenOptions};
use ubtrfs_format::item::FileTime;
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};

use crate::error::{Error, Naming, Result};

/// An open volume, seen from the root of one of its subvolumes. Cheap to clone: clones are the same volume, which is
/// closed when the last clone and the last [`File`](crate::File) are dropped, or by [`Volume::close`].
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) engine: Engine,
    pub(crate) root: FileId,
}

/// The engine, closed with the last clone of the handle, after which the devices may be opened anew.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<OpenEngine>);

#[derive(Debug)]
struct OpenEngine(Arc<ubtrfs_engine::Volume>);

impl Deref for Engine {
    type Target = Arc<ubtrfs_engine::Volume>;

    fn deref(&self) -> &Self::Target {
        &self.0.0
    }
}

impl Drop for OpenEngine {
    /// `Volume::close` tells whether the last changes are durable.
    fn drop(&mut self) {
        // The engine has logged the reason.
        let _ = self.0.close();
    }
}

/// A new file of this process, which is removed again unless it is kept.
struct MadeFile<'a> {
    path: &'a Path,
    file: fs::File,
    is_kept: bool,
}

impl Drop for MadeFile<'_> {
    fn drop(&mut self) {
        let identity = |file: fs::Metadata| (file.dev(), file.ino());
        let made = self.file.metadata().map(identity).ok();
        let named = self.path.symlink_metadata().map(identity).ok();
        // Another file may have the name by now.
        if !self.is_kept && made == named {
            // The first error is the one to be told.
            let _ = fs::remove_file(self.path);
        }
    }
}

/// How a volume is opened or made.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    options: OpenOptions,
    mkfs: MkfsOptions,
    read_only: bool,
}

impl Builder {
    /// Opens for reading: others may do the same meanwhile.
    #[must_use]
    pub fn read_only(mut self) -> Builder {
        self.read_only = true;
        self
    }

    /// Opens although devices are missing, as far as the profiles allow.
    #[must_use]
    pub fn degraded(mut self) -> Builder {
        self.options = self.options.degraded(true);
        self
    }

    /// How long a change may stay uncommitted; None: until `sync`, or until memory runs short.
    #[must_use]
    pub fn commit_interval(mut self, interval: Option<Duration>) -> Builder {
        self.options = self.options.commit_interval(interval);
        self
    }

    /// Keeps changes of times alone in memory until the file changes otherwise or is synced, or for a day. A crash may
    /// lose them.
    #[must_use]
    pub fn lazy_times(mut self, lazy_times: bool) -> Builder {
        self.options = self.options.lazy_times(lazy_times);
        self
    }

    /// Files, folders (for what is directly in them) or `/dev` (for all block devices) among which the volume's other
    /// devices are looked for. Without it only the device that is named is opened.
    #[must_use]
    pub fn scan(mut self, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> Builder {
        let places = places.into_iter().map(Into::into);
        self.options = self.options.scan(places.collect());
        self
    }

    /// How files are compressed that do not say it themselves, by a flag or a property. Not at all by default.
    #[must_use]
    pub fn compress(mut self, compress: Compress) -> Builder {
        self.options = self.options.compress(compress);
        self
    }

    /// Has new files overwritten where they lie, as `-o nodatacow`: without checksums, and without compression.
    #[must_use]
    pub fn no_data_cow(mut self, no_data_cow: bool) -> Builder {
        self.options = self.options.no_data_cow(no_data_cow);
        self
    }

    /// Gives new files no checksums, as `-o nodatasum`: what a device then returns is taken for true.
    #[must_use]
    pub fn no_data_sum(mut self, no_data_sum: bool) -> Builder {
        self.options = self.options.no_data_sum(no_data_sum);
        self
    }

    /// The largest file that is kept in its item, in bytes; 2048 by default. At most what a leaf has room for counts, and
    /// less than a sector unless the file is compressed. 0: none.
    #[must_use]
    pub fn max_inline_bytes(mut self, max_inline_bytes: u64) -> Builder {
        self.options = self.options.max_inline_bytes(max_inline_bytes);
        self
    }

    /// Budget of the cache of tree blocks, in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Builder {
        self.options = self.options.cache_bytes(bytes);
        self
    }

    /// Lowers all caches and budgets to their shares of so much memory. Call it after those that set them.
    #[must_use]
    pub fn limit_memory(mut self, bytes: u64) -> Builder {
        self.options = self.options.limit_memory(bytes);
        self
    }

    /// What a new volume shall be: label, profiles, checksums, node size, features.
    #[must_use]
    pub fn mkfs(mut self, options: MkfsOptions) -> Builder {
        self.mkfs = options;
        self
    }

    /// Opens the volume that has `path` among its devices; the others are looked for where [`Builder::scan`] says.
    ///
    /// # Errors
    ///
    /// - there is no such file ([`NotFound`](std::io::ErrorKind::NotFound))
    /// - it holds no btrfs (`InvalidData`)
    /// - it is in use (`ResourceBusy`)
    /// - devices are missing
    /// - it has features that cannot be written
    pub fn open(self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let options = self.open_options();
        let engine = ubtrfs_engine::Volume::open(&[path.to_owned()], &options);
        let volume = engine.map_err(Error::from).and_then(Volume::of_engine);
        volume.naming("open volume", path)
    }

    /// Makes a volume in a file that must not exist, and opens it. The file is sparse.
    ///
    /// Errors: after any there is no such file, unless it existed before.
    pub fn create(self, path: impl AsRef<Path>, len_bytes: u64) -> Result<Volume> {
        let path = path.as_ref();
        let failed = |source| Error::Image {
            path: path.to_owned(),
            source,
        };
        let file = fs::File::create_new(path).map_err(failed)?;
        let mut made = MadeFile {
            path,
            file,
            is_kept: false,
        };
        made.file.set_len(len_bytes).map_err(failed)?;
        let device = FileDevice::open(path, ubtrfs_device::Access::Write);
        let volume = device
            .map_err(|error| ubtrfs_engine::Error::from(error).into())
            .and_then(|device| self.make(Arc::new(device), path.to_owned()))
            .naming("create volume", path)?;
        made.is_kept = true;
        Ok(volume)
    }

    /// Makes a volume in memory; what is not written takes none.
    pub fn in_memory(self, len_bytes: u64) -> Result<Volume> {
        self.make(Arc::new(MemDevice::new(len_bytes)), PathBuf::from("memory"))
    }

    /// Makes a volume on a device of the caller's own. What was on it is lost.
    pub fn make(self, device: Arc<dyn BlockDevice>, name: PathBuf) -> Result<Volume> {
        let identity = Identity::random(1, FileTime::now().into());
        let plan = Plan::new(&self.mkfs, &identity, &[device.len_bytes()])?;
        plan.write(&[&*device], false)?;
        self.open_devices(vec![(name, device)])
    }

    /// Opens a volume on devices of the caller's own; the paths are names for messages.
    pub fn open_devices(self, devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>) -> Result<Volume> {
        let options = self.open_options();
        Volume::of_engine(ubtrfs_engine::Volume::from_devices(devices, &options)?)
    }

    fn open_options(&self) -> OpenOptions {
        self.options.clone().writable(!self.read_only)
    }
}

impl Volume {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a volume for reading and writing, alone.
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::builder().open(path)
    }

    /// Opens a volume for reading.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::builder().read_only().open(path)
    }

    /// Makes a volume in a new file; see [`Builder::create`].
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Volume> {
        Volume::builder().create(path, len_bytes)
    }

    /// Makes a volume in memory; see [`Builder::in_memory`].
    pub fn in_memory(len_bytes: u64) -> Result<Volume> {
        Volume::builder().in_memory(len_bytes)
    }

    /// The view of the top level's root of an open volume.
    pub fn of_engine(engine: Arc<ubtrfs_engine::Volume>) -> Result<Volume> {
        let root = engine.root_dir(ubtrfs_format::ids::RootId::FS_TREE)?;
        let engine = Engine(Arc::new(OpenEngine(engine)));
        Ok(Volume { engine, root })
    }

    /// The engine below: inode handles instead of paths. It takes no changes once the last handle of this kind is
    /// dropped, which closes it.
    pub fn engine(&self) -> &Arc<ubtrfs_engine::Volume> {
        &self.engine
    }

    /// Writes all buffered data and commits everything done before the call. Returns when it is durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    /// Commits everything and closes the volume, for all clones and open files: from here on they change nothing. The devices
    /// are free when the last of these is dropped.
    ///
    /// Errors: as [`Volume::sync`]. The volume is closed all the same.
    pub fn close(self) -> Result<()> {
        Ok(self.engine.close()?)
    }
}

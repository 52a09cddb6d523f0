//! Options for opening and creating volumes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, DeviceName, FileDevice, MemDevice};
use ubtrfs_fs::{OpenOptions, Rescue};

use super::Volume;
use crate::error::{Cause, Caused, Naming, Result};
use crate::layers::Choice;
use crate::mkfs::Mkfs;

type Devices = Vec<(PathBuf, Arc<dyn BlockDevice>)>;

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
            // The first error is the one to return.
            let _ = fs::remove_file(self.path);
        }
    }
}

/// Options for opening and creating volumes.
///
/// ```
/// use std::time::Duration;
/// use ubtrfs::{MkfsOptions, Profile, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// let mirrored = MkfsOptions {
///     label: b"archive".to_vec(),
///     data: Some(Profile::Raid1),
///     metadata: Some(Profile::Raid1),
///     ..MkfsOptions::default()
/// };
/// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
/// let volume = Volume::builder()
///     .mkfs(mirrored)
///     .commit_interval(Some(Duration::from_secs(5)))
///     .memory_bytes(128 << 20)
///     .create(&paths, 1 << 30)?;
/// volume.close()?;
/// let volume = Volume::builder().scan([folder.path()]).open(&paths[1..])?;
/// assert_eq!(volume.label(), "archive");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    options: OpenOptions,
    mkfs: Mkfs,
    force: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            options: OpenOptions::new().writable(true),
            mkfs: Mkfs::default(),
            force: false,
        }
    }
}

/// A log that was dropped. [`Builder::clear_log`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClearedLog {
    /// The address of the root block of the log. `None` if there was no log.
    pub log_root: Option<u64>,
    /// The level of that block.
    pub level: u8,
    /// The ids of missing devices, which still refer to the log.
    pub missing_devices: Vec<u64>,
}

impl ClearedLog {
    fn of(cleared: ubtrfs_fs::ClearedLog) -> ClearedLog {
        let log_root = cleared.log_root.0;
        ClearedLog {
            log_root: (log_root != 0).then_some(log_root),
            level: cleared.level,
            missing_devices: cleared.missing.iter().map(|devid| devid.0).collect(),
        }
    }
}

/// Methods of [`Builder`] that set options of the engine, except those that programs seldom choose.
macro_rules! forward {
    ($($(#[doc = $doc:literal])* $([$seldom:ident])? $name:ident($arg:ident: $ty:ty)
        => $($place:ident).+ = $value:expr $(, [$($word:expr),* $(,)?])?;)*) => {
        $(setter! { $([$seldom])? $(#[doc = $doc])* $name($arg: $ty) })*
    };
}

macro_rules! setter {
    ([seldom] $($option:tt)*) => {};
    ($(#[doc = $doc:literal])* $name:ident($arg:ident: $ty:ty)) => {
        $(#[doc = $doc])*
        #[must_use]
        pub fn $name(mut self, $arg: $ty) -> Builder {
            self.options = self.options.$name($arg);
            self
        }
    };
}

impl Builder {
    ubtrfs_fs::with_open_options! { forward }

    /// Sets an option by its name from text, for programs that read options from a file or the command line.
    /// [`OPEN_OPTIONS`](crate::OPEN_OPTIONS) lists all options. Those that programs seldom choose, such as the shares
    /// of single caches, have no method of their own.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let mut builder = Volume::builder();
    /// for option in ["compress=zstd:3", "max_inline_bytes=0"] {
    ///     let (name, value) = option.split_once('=').expect("a value");
    ///     builder = builder.set(name, value)?;
    /// }
    /// builder.in_memory(256 << 20)?.close()?;
    /// let refused = Volume::builder().set("compress", "zstd:99").unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such option, or the text is no value of it (`InvalidInput`).
    pub fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Result<Builder> {
        let set = self.options.set(name, value.as_ref());
        set.map_err(Cause::Option).naming_alone("set an option")?;
        Ok(self)
    }

    /// Returns whether [`Builder::read_only`] or [`Builder::as_committed`] applies.
    pub fn is_read_only(&self) -> bool {
        self.options.reads_only()
    }

    /// Opens the volume read-only like [`Builder::as_committed`], even if the chunk tree or the root tree is damaged.
    /// Few calls succeed then: it is for programs that display tree blocks of the [engine](Volume::engine).
    #[doc(hidden)]
    #[must_use]
    pub fn for_inspection(mut self) -> Builder {
        self.options = self.options.rescue(Rescue {
            no_log_replay: true,
            ignore_bad_top_trees: true,
            ..Rescue::default()
        });
        self
    }

    /// Sets the description of a new volume: options (label, profiles, checksums, node size, features), or an [`Mkfs`],
    /// which can also fill it.
    #[must_use]
    pub fn mkfs(mut self, mkfs: impl Into<Mkfs>) -> Builder {
        self.mkfs = mkfs.into();
        self
    }

    /// Opens the volume on all of `devices` and its other devices, which are searched as set with [`Builder::scan`].
    ///
    /// A volume that is opened read-only may also be on partitions of the devices, on md arrays of them or on LVM
    /// volumes. These layers are then read by this process. [`Builder::volume`] chooses one of several volumes.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
    /// Volume::builder().create(&paths, 1 << 30)?.close()?;
    /// let volume = Volume::builder().open(&paths)?;
    /// assert_eq!(volume.devices().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - a file does not exist ([`NotFound`](std::io::ErrorKind::NotFound))
    /// - it contains no btrfs (`InvalidData`)
    /// - it is in use (`ResourceBusy`)
    /// - devices are missing (`NotFound`)
    /// - it has unknown features (`Unsupported`), or features that cannot be written (`ReadOnlyFilesystem`)
    /// - a device is named by a URI (`Unsupported`)
    /// - the devices belong to different volumes, or no device is named (`InvalidInput`)
    /// - the devices hold several volumes, and none is chosen (`InvalidInput`)
    /// - it is on partitions, arrays or LVM volumes, and would be written (`ReadOnlyFilesystem`)
    pub fn open<D: Clone + Into<DeviceName>>(self, devices: &[D]) -> Result<Volume> {
        let names: Vec<DeviceName> = devices.iter().cloned().map(Into::into).collect();
        let shown = names.first().map_or(Path::new(""), DeviceName::as_path);
        self.open_named(&names).naming("open volume", shown)
    }

    fn open_named(self, names: &[DeviceName]) -> Caused<Volume> {
        let options = self.open_options();
        let access = if options.reads_only() {
            Access::Read
        } else {
            Access::Write
        };
        let choice = Choice {
            names,
            scan: options.scan_places(),
            volume: options.chosen_volume(),
            access,
        };
        choice.open(
            || {
                let engine = ubtrfs_fs::Volume::open(names, &options)?;
                Ok(Volume::new(engine))
            },
            |devices| self.open_made(devices),
        )
    }

    /// Drops the log of fsyncs of a volume that is not in use. A volume with a damaged log cannot be opened for writing
    /// before. Data that was synced since the last commit is lost.
    ///
    /// With [`Builder::degraded`] devices may be missing. They keep their log, which belongs to the same commit: it can
    /// still be replayed if they return before the next one.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let path = folder.path().join("volume.img");
    /// Volume::create(&path, 1 << 30)?.close()?;
    /// let cleared = Volume::builder().clear_log(&[&path])?;
    /// assert_eq!(cleared.log_root, None);
    /// assert!(cleared.missing_devices.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Builder::open`] for writing, except that the log may be damaged.
    pub fn clear_log<D: Clone + Into<DeviceName>>(self, devices: &[D]) -> Result<ClearedLog> {
        let names: Vec<DeviceName> = devices.iter().cloned().map(Into::into).collect();
        let shown = names.first().map_or(Path::new(""), DeviceName::as_path);
        let cleared = ubtrfs_fs::Volume::clear_log(&names, &self.options);
        cleared
            .map(ClearedLog::of)
            .naming("clear the log of", shown)
    }

    /// Creates a volume in files that must not exist, each a device of this length, and opens it. The files are sparse.
    ///
    /// # Errors
    ///
    /// - a file already exists (`AlreadyExists`)
    /// - the length is too small for a volume (`StorageFull`)
    /// - the options contradict each other, or there are too few files for a profile, or none (`InvalidInput`)
    ///
    /// After any error there are no such files, unless they existed before.
    pub fn create<P: AsRef<Path>>(self, paths: &[P], len_bytes: u64) -> Result<Volume> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let shown = paths.first().copied().unwrap_or(Path::new(""));
        self.create_files(&paths, len_bytes)
            .naming("create volume", shown)
    }

    fn create_files(self, paths: &[&Path], len_bytes: u64) -> Caused<Volume> {
        let mut made = Vec::new();
        let mut devices: Devices = Vec::new();
        for path in paths {
            let file = fs::File::create_new(path).naming("create", path)?;
            let file = MadeFile {
                path,
                file,
                is_kept: false,
            };
            file.file.set_len(len_bytes).naming("lengthen", path)?;
            let device = FileDevice::open(path, Access::Write)?;
            devices.push((path.to_path_buf(), Arc::new(device)));
            made.push(file);
        }
        let volume = self.format_devices(devices)?;
        for file in &mut made {
            file.is_kept = true;
        }
        Ok(volume)
    }

    /// Sets whether [`Builder::format`] may overwrite existing contents. The default is false.
    #[must_use]
    pub fn force(mut self, force: bool) -> Builder {
        self.force = force;
        self
    }

    /// Creates a volume on existing files and block devices, which keep their sizes, and opens it. Their contents are
    /// lost.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let path = folder.path().join("volume.img");
    /// Volume::create(&path, 1 << 30)?.close()?;
    /// let refused = Volume::builder().format(&[&path]).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    /// let volume = Volume::builder().force(true).format(&[&path])?;
    /// assert_eq!(volume.root().read_dir("/")?.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - one contains a file system, a partition table or similar (`AlreadyExists`), unless [`Builder::force`] is true
    /// - one is a zoned device (`Unsupported`)
    /// - one is in use, or is named twice (`ResourceBusy`), or does not exist (`NotFound`)
    /// - the errors of [`Builder::make`]
    ///
    /// Nothing is written after an error of the first three kinds.
    pub fn format<P: AsRef<Path>>(self, paths: &[P]) -> Result<Volume> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let shown = paths.first().copied().unwrap_or(Path::new(""));
        self.format_existing(&paths).naming("create volume", shown)
    }

    fn format_existing(self, paths: &[&Path]) -> Caused<Volume> {
        let mut devices: Devices = Vec::new();
        for path in paths {
            // It stays locked from here on, so that the device that was checked is the one that is overwritten.
            let device = FileDevice::open(path, Access::Write)?;
            if device.is_host_managed() {
                return Err(Cause::Zoned).naming("open", path)?;
            }
            if !self.force
                && let Some(found) = ubtrfs_device::find_signature(&device).naming("read", path)?
            {
                return Err(Cause::Occupied {
                    path: path.to_path_buf(),
                    found: found.to_string(),
                });
            }
            devices.push((path.to_path_buf(), Arc::new(device)));
        }
        self.format_devices(devices)
    }

    /// Creates a volume in memory. Unwritten ranges take no memory.
    ///
    /// # Errors
    ///
    /// As [`Builder::make`].
    pub fn in_memory(self, len_bytes: u64) -> Result<Volume> {
        let device = Arc::new(MemDevice::new(len_bytes));
        self.make(vec![(PathBuf::from("memory"), device)])
    }

    /// Creates a volume on the caller's own devices, and opens it. Their contents are lost. The paths are names for
    /// messages.
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use std::sync::Arc;
    /// use ubtrfs::{BlockDevice, MemDevice, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(256 << 20));
    /// let devices = || vec![(PathBuf::from("device"), device.clone())];
    /// let volume = Volume::builder().make(devices())?;
    /// volume.root().write("/file", b"content")?;
    /// volume.close()?;
    /// let volume = Volume::builder().read_only(true).open_devices(devices())?;
    /// assert_eq!(volume.root().read("/file")?, b"content");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A device is too small (`StorageFull`) or fails; the options contradict each other.
    pub fn make(self, devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>) -> Result<Volume> {
        let shown = devices.first().map(|(path, _)| path.clone());
        self.format_devices(devices)
            .naming("create volume", &shown.unwrap_or_default())
    }

    fn format_devices(self, devices: Devices) -> Caused<Volume> {
        let named: Vec<_> = devices
            .iter()
            .map(|(path, device)| (path.as_path(), &**device))
            .collect();
        let sizes: Vec<u64> = named.iter().map(|(_, device)| device.len_bytes()).collect();
        let mkfs = self
            .mkfs
            .clone()
            .or_compress(self.options.default_compression());
        mkfs.make(&sizes, &named)?;
        drop(named);
        self.open_made(devices)
    }

    fn open_made(self, devices: Devices) -> Caused<Volume> {
        let options = self.open_options();
        let engine = ubtrfs_fs::Volume::from_devices(devices, &options)?;
        Ok(Volume::new(engine))
    }

    /// Opens a volume on the caller's own devices; the paths are names for messages.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open_devices(self, devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>) -> Result<Volume> {
        let shown = devices.first().map(|(path, _)| path.clone());
        self.open_made(devices)
            .naming("open volume", &shown.unwrap_or_default())
    }

    fn open_options(&self) -> OpenOptions {
        self.options.clone().read_only(self.is_read_only())
    }
}

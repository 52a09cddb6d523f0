//! Creating new volumes, empty or filled.
//!
//! Not here: opening them (`volume`), the contents of a new volume (`ubtrfs-mkfs`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_device::{BlockDevice, memory_limit};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{InodeFlags, Timespec};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{Compress, FileTime};
use ubtrfs_mkfs::{
    ArchiveReader, FillOptions, FilledVolume, FlagsRequest, Growth, Identity, Input, LeftOutAcls,
    MkfsError, Plan, Scratch, SubvolumeRequest, TimeRule, VolumeChunks, fill,
};
use ubtrfs_spill::ScratchDir;

use crate::error::{Cause, Caused, Naming, Result};
use crate::host_owners::HostOwners;
use crate::mkfs_options::{Geometry, MkfsOptions};
use crate::subvolume::Access;

mod named;

pub use self::named::MKFS_OPTIONS;

/// The description of a new volume: empty or filled, with a random or given identity.
///
/// [`Builder`](crate::Builder) creates and opens a volume in one step. [`Mkfs::plan`] is for programs that inspect the
/// plan first, and for volumes that use only a part of a device.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{BlockDevice, MemDevice, Mkfs, MkfsOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let options = MkfsOptions {
///     label: b"new".to_vec(),
///     ..MkfsOptions::default()
/// };
/// let device = MemDevice::new(256 << 20);
/// let planned = Mkfs::new(options).plan(&[device.len_bytes()])?;
/// let made = planned.write(&[(Path::new("memory"), &device)], &mut ())?;
/// assert_eq!((made.total_bytes, made.geometry.nodesize), (256 << 20, 16 << 10));
/// assert!(made.filled.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    options: MkfsOptions,
    uuid: Option<Uuid>,
    device_uuids: Option<Vec<Uuid>>,
    repeatable: Option<SystemTime>,
    contents: Option<Contents>,
    compress: Option<Compress>,
    /// Options that depend on others, on the host or on the devices are added by [`Mkfs::fill_options`].
    fill: FillOptions,
    scratch_dir: Option<PathBuf>,
    progress: Option<SharedProgress>,
}

/// The directory of kernels, which boot loaders read.
const BOOT: &str = "boot";

/// The observer of a fill. Other threads may lock it between two calls.
#[derive(Clone)]
struct SharedProgress(Arc<Mutex<dyn Progress + Send>>);

impl fmt::Debug for SharedProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedProgress").finish_non_exhaustive()
    }
}

impl Progress for SharedProgress {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        progress.event(event)
    }
}

/// The initial files of a volume.
#[derive(Clone, Debug)]
enum Contents {
    /// A folder or an archive.
    At(PathBuf),
    Archive(Arc<File>),
    /// The bytes of an archive, until they are read.
    Reader(Arc<Mutex<Option<ArchiveReader>>>),
}

impl From<MkfsOptions> for Mkfs {
    fn from(options: MkfsOptions) -> Mkfs {
        Mkfs::new(options)
    }
}

impl Mkfs {
    /// Creates the description of an empty volume with random UUIDs.
    pub fn new(options: MkfsOptions) -> Mkfs {
        Mkfs {
            options,
            ..Mkfs::default()
        }
    }

    /// Sets the UUID of the volume, which must be unique.
    #[must_use]
    pub fn uuid(mut self, uuid: Uuid) -> Mkfs {
        self.uuid = Some(uuid);
        self
    }

    /// Sets the UUIDs of the devices, one for each.
    #[must_use]
    pub fn device_uuids(mut self, uuids: impl IntoIterator<Item = Uuid>) -> Mkfs {
        self.device_uuids = Some(uuids.into_iter().collect());
        self
    }

    /// Sets the current time to assume, as builds do with `SOURCE_DATE_EPOCH`, so that the same options and files
    /// produce the same volume, byte for byte. It is rounded down to seconds.
    ///
    /// No file has a later time. All UUIDs are derived from the UUID of the volume, and this one from options and files
    /// if it is not given. An empty volume without a given UUID still has random ones.
    ///
    /// ```
    /// use std::path::Path;
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use ubtrfs::{BlockDevice, MemDevice, Mkfs, MkfsOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = tempfile::tempdir()?;
    /// # std::fs::write(host.path().join("file"), "content")?;
    /// let mut uuids = Vec::new();
    /// for _ in 0..2 {
    ///     let device = MemDevice::new(256 << 20);
    ///     let mkfs = Mkfs::new(MkfsOptions::default())
    ///         .fill_from(host.path())
    ///         .repeatable(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    ///     let made = mkfs.plan(&[device.len_bytes()])?.write(&[(Path::new("image"), &device)], &mut ())?;
    ///     uuids.push(made.uuid);
    /// }
    /// assert_eq!(uuids[0], uuids[1]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn repeatable(mut self, present: SystemTime) -> Mkfs {
        self.repeatable = Some(present);
        self
    }

    /// Discards the contents of the devices first, as mkfs.btrfs does by default. Here the default is false.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Mkfs {
        self.fill.discard = discard;
        self
    }

    /// Fills the volume with the files of a folder of the host, or of a tar archive, compressed or not. That is faster
    /// than copying them, since each tree is written once.
    ///
    /// ```
    /// use ubtrfs::{Access, Mkfs, MkfsOptions, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let host = tempfile::tempdir().expect("there is room");
    /// # std::fs::create_dir(host.path().join("etc")).expect("there is room");
    /// # std::fs::write(host.path().join("etc/hostname"), "machine").expect("there is room");
    /// let mkfs = Mkfs::new(MkfsOptions::default())
    ///     .fill_from(host.path())
    ///     .make_subvolume("etc", Access::ReadOnly);
    /// let volume = Volume::builder().mkfs(mkfs).in_memory(256 << 20)?;
    /// assert_eq!(volume.root().read("/etc/hostname")?, b"machine");
    /// assert!(volume.root().subvolume("/etc")?.is_read_only()?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fill_from(mut self, contents: impl Into<PathBuf>) -> Mkfs {
        self.contents = Some(Contents::At(contents.into()));
        self
    }

    /// Fills the volume with the files of an open tar archive: a file or a pipe, read from its current position.
    #[must_use]
    pub fn fill_from_archive(mut self, archive: File) -> Mkfs {
        self.contents = Some(Contents::Archive(Arc::new(archive)));
        self
    }

    /// Fills the volume with the files of a tar archive that is read once. Data is written as it is read, so that
    /// memory use does not depend on it.
    ///
    /// ```
    /// use ubtrfs::{Mkfs, MkfsOptions, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let from = Volume::in_memory(256 << 20)?;
    /// from.root().write("/file", b"content")?;
    /// let mut archive = Vec::new();
    /// from.root().export_tar("/", &mut archive, &mut ())?;
    ///
    /// let mkfs = Mkfs::new(MkfsOptions::default()).fill_from_reader(std::io::Cursor::new(archive));
    /// let volume = Volume::builder().mkfs(mkfs.clone()).in_memory(256 << 20)?;
    /// assert_eq!(volume.root().read("/file")?, b"content");
    /// // It has been read.
    /// assert!(Volume::builder().mkfs(mkfs).in_memory(256 << 20).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fill_from_reader(mut self, archive: impl Read + Send + 'static) -> Mkfs {
        let reader = ArchiveReader(Box::new(archive));
        self.contents = Some(Contents::Reader(Arc::new(Mutex::new(Some(reader)))));
        self
    }

    /// Compresses the initial files. The default is [`Builder::compress`](crate::Builder::compress).
    #[must_use]
    pub fn compress(mut self, compress: Compress) -> Mkfs {
        self.compress = Some(compress);
        self
    }

    /// Turns a directory of the initial contents into a subvolume. The path is relative to the contents. May be called
    /// repeatedly.
    #[must_use]
    pub fn make_subvolume(self, path: impl Into<PathBuf>, access: Access) -> Mkfs {
        self.request(path.into(), access, false)
    }

    /// Turns a directory into a subvolume, as [`Mkfs::make_subvolume`], and makes it the default subvolume.
    #[must_use]
    pub fn make_default_subvolume(self, path: impl Into<PathBuf>, access: Access) -> Mkfs {
        self.request(path.into(), access, true)
    }

    fn request(mut self, path: PathBuf, access: Access, is_default: bool) -> Mkfs {
        self.fill.subvolumes.push(SubvolumeRequest {
            path,
            is_read_only: access == Access::ReadOnly,
            is_default,
        });
        self
    }

    /// Makes a file, or all files in a directory, overwritten in place, without checksums. The path is relative to the
    /// initial contents. May be called repeatedly.
    #[must_use]
    pub fn no_data_cow(self, path: impl Into<PathBuf>) -> Mkfs {
        // Data that is overwritten in place cannot always have a correct checksum.
        self.flag(path.into(), InodeFlags::NODATACOW | InodeFlags::NODATASUM)
    }

    /// Disables checksums for a file, or all files in a directory. The path is as in [`Mkfs::no_data_cow`].
    #[must_use]
    pub fn no_data_sum(self, path: impl Into<PathBuf>) -> Mkfs {
        self.flag(path.into(), InodeFlags::NODATASUM)
    }

    fn flag(mut self, path: PathBuf, flags: InodeFlags) -> Mkfs {
        self.fill.flags.push(FlagsRequest { path, flags });
        self
    }

    /// Writes out the holes of a file, or of all files in a directory, as zeros, up to 1 GiB for each file. The path is
    /// relative to the initial contents, and need not exist. May be called repeatedly. This is always done below
    /// `boot`, at the root and in each new subvolume, because GRUB cannot read holes.
    #[must_use]
    pub fn dense(mut self, path: impl Into<PathBuf>) -> Mkfs {
        self.fill.dense.push(path.into());
        self
    }

    /// Sets the owner of all initial files to this user and group. ACLs are preserved.
    ///
    /// ```
    /// use ubtrfs::{Mkfs, MkfsOptions, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let host = tempfile::tempdir().expect("there is room");
    /// # std::fs::write(host.path().join("file"), "content").expect("there is room");
    /// let mkfs = Mkfs::new(MkfsOptions::default()).fill_from(host.path()).owner(1000, 100);
    /// let volume = Volume::builder().mkfs(mkfs).in_memory(256 << 20)?;
    /// let file = volume.root().metadata("/file")?;
    /// assert_eq!((file.uid(), file.gid()), (1000, 100));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Mkfs {
        self.fill.owner = Some((uid, gid));
        self
    }

    /// Makes an image share blocks with the files of the source folder, if both are on a file system that supports
    /// this. [`FilledContents::shared`] has the result.
    #[must_use]
    pub fn reflink(mut self, reflink: bool) -> Mkfs {
        self.fill.reflink = reflink;
        self
    }

    /// Sets whether images may grow to hold the initial contents. By default they may not.
    #[must_use]
    pub fn growth(mut self, growth: Growth) -> Mkfs {
        self.fill.growth = growth;
        self
    }

    /// Truncates a filled volume to the minimum size at which it is still writable.
    #[must_use]
    pub fn shrink(mut self, shrink: bool) -> Mkfs {
        self.fill.shrink = shrink;
        self
    }

    /// Sets the folder for temporary files while a volume is filled. The default is `TMPDIR`. If that is not set, it is
    /// the folder of an image, `/var/tmp` or `/tmp`: the first that is writable and not in memory.
    #[must_use]
    pub fn scratch_dir(mut self, folder: impl Into<PathBuf>) -> Mkfs {
        self.scratch_dir = Some(folder.into());
        self
    }

    /// Sets the observer of the fill. Each file and its data are reported, also while the trees are built: then with 0
    /// bytes. [`Progress`] has an example.
    #[must_use]
    pub fn observe(mut self, progress: Arc<Mutex<dyn Progress + Send>>) -> Mkfs {
        self.progress = Some(SharedProgress(progress));
        self
    }

    /// Sets the compression of the builder, unless this description has its own.
    pub(crate) fn or_compress(mut self, compress: Compress) -> Mkfs {
        self.compress.get_or_insert(compress);
        self
    }

    /// Returns the options for this number of devices, with all defaults filled in and all limits checked.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or exceed the limits for this number of devices (`InvalidInput`).
    pub fn geometry(&self, devices: usize) -> Result<Geometry> {
        let geometry = self.options.resolve(devices);
        geometry.naming_alone("make a volume")
    }

    /// Plans a volume that uses `device_bytes` of each device, without writing. An empty volume is planned completely.
    /// The files of a filled volume are read later: [`PlannedVolume::write`] fails if they do not fit.
    ///
    /// # Errors
    ///
    /// - the errors of [`Mkfs::geometry`]
    /// - a device is too small (`StorageFull`), or the number of UUIDs differs from the number of devices
    ///   (`InvalidInput`)
    /// - the initial contents cannot be opened
    pub fn plan(&self, device_bytes: &[u64]) -> Result<PlannedVolume> {
        let planned = self.planned(device_bytes);
        planned.naming_alone("make a volume")
    }

    /// Plans and writes a volume, for an operation that names the devices.
    pub(crate) fn make(
        &self,
        device_bytes: &[u64],
        devices: &[(&Path, &dyn BlockDevice)],
    ) -> Caused<()> {
        let planned = self.planned(device_bytes)?;
        match self.progress.clone() {
            Some(mut progress) => planned.written(devices, &mut progress)?,
            None => planned.written(devices, &mut ())?,
        };
        Ok(())
    }

    fn planned(&self, device_bytes: &[u64]) -> Caused<PlannedVolume> {
        let identity = self.identity(device_bytes.len())?;
        let work = match &self.contents {
            None => Work::Empty(Box::new(Plan::new(&self.options, &identity, device_bytes)?)),
            Some(contents) => Work::Filled(contents.open()?),
        };
        Ok(PlannedVolume {
            mkfs: self.clone(),
            identity,
            device_bytes: device_bytes.to_vec(),
            work,
        })
    }

    fn identity(&self, devices: usize) -> Caused<Identity> {
        let created = self.repeatable.map_or_else(FileTime::now, FileTime::from);
        // Whole seconds, as in mkfs.btrfs.
        let created = Timespec::from(FileTime { nsec: 0, ..created });
        let is_repeatable = self.repeatable.is_some();
        let mut identity = match self.uuid {
            Some(uuid) if is_repeatable => Identity::derived(uuid, devices, created),
            None if is_repeatable && self.contents.is_some() => {
                Identity::of_contents(devices, created)
            }
            given => {
                let mut identity = Identity::random(devices, created);
                identity.fsid = given.unwrap_or(identity.fsid);
                identity
            }
        };
        match &self.device_uuids {
            Some(uuids) if uuids.len() != devices => {
                return Err(Cause::InvalidOptions("UUIDs of other devices"));
            }
            Some(uuids) => identity.device_uuids.clone_from(uuids),
            None => {}
        }
        Ok(identity)
    }

    /// Returns the paths below which holes are written out.
    fn dense_paths(&self) -> Vec<PathBuf> {
        let roots = self
            .fill
            .subvolumes
            .iter()
            .map(|request| request.path.join(BOOT));
        let boot = std::iter::once(PathBuf::from(BOOT)).chain(roots);
        boot.chain(self.fill.dense.iter().cloned()).collect()
    }

    /// Returns the options for filling the volume. `images` are the paths of the devices: these files cannot be among
    /// the initial files.
    fn fill_options<'p>(&self, images: impl Iterator<Item = &'p Path>) -> FillOptions {
        let compression = self.compress.map(|of| (of.algorithm, of.level));
        let images: Vec<&Path> = images.collect();
        let scratch_dir = match &self.scratch_dir {
            Some(folder) => ScratchDir::named(folder),
            None => ScratchDir::beside(&images),
        };
        let scratch = Scratch::new(scratch_dir);
        let images = images.iter().filter_map(|path| path.metadata().ok());
        let images = images.filter(fs::Metadata::is_file);
        let times = self.repeatable.map(|latest| FileTime::from(latest).sec);
        FillOptions {
            compression: compression.filter(|(algorithm, _)| *algorithm != Compression::None),
            dense: self.dense_paths(),
            times: times.map_or(TimeRule::Keep, TimeRule::Clamp),
            scratch: scratch.limit_memory(memory_limit()),
            targets: images.map(|file| (file.dev(), file.ino())).collect(),
            owners: HostOwners::load().numbers(),
            ..self.fill.clone()
        }
    }
}

impl Contents {
    fn open(&self) -> Caused<Input> {
        match self {
            Contents::At(path) => {
                let metadata = path.metadata().naming("read", path)?;
                Ok(if metadata.is_dir() {
                    Input::Folder(path.clone())
                } else {
                    Input::Archive(File::open(path).naming("open", path)?)
                })
            }
            Contents::Archive(file) => Ok(Input::Archive(file.try_clone()?)),
            Contents::Reader(reader) => {
                let reader = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
                let reader = reader.ok_or(Cause::InvalidOptions("the archive was read before"))?;
                Ok(Input::Reader(reader))
            }
        }
    }
}

/// A volume that is planned, but not written yet. [`Mkfs`] has an example.
#[derive(Debug)]
pub struct PlannedVolume {
    mkfs: Mkfs,
    identity: Identity,
    device_bytes: Vec<u64>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Empty(Box<Plan>),
    Filled(Input),
}

impl PlannedVolume {
    /// Writes the volume to its devices, and reports the fill to `progress`, not to the observer of [`Mkfs::observe`].
    /// The old contents of the devices are lost. The paths are names, or the paths of images, which are excluded from
    /// the initial files.
    ///
    /// # Errors
    ///
    /// - the number of devices differs from the plan, or one is shorter (`InvalidInput`): nothing was written
    /// - a device fails
    /// - the initial contents cannot be read, change during the call, or do not fit (`StorageFull`)
    /// - `progress` cancels it (`Interrupted`)
    ///
    /// After an error of the last three kinds, the devices contain no volume, or all of their old contents.
    pub fn write(
        self,
        devices: &[(&Path, &dyn BlockDevice)],
        progress: &mut dyn Progress,
    ) -> Result<MadeVolume> {
        let written = self.written(devices, progress);
        written.naming_alone("make a volume")
    }

    fn written(
        self,
        devices: &[(&Path, &dyn BlockDevice)],
        progress: &mut dyn Progress,
    ) -> Caused<MadeVolume> {
        let PlannedVolume {
            mkfs,
            identity,
            device_bytes,
            work,
        } = self;
        if devices.len() != device_bytes.len() {
            return Err(Cause::Mkfs(MkfsError::DeviceCount {
                devices: devices.len(),
                planned: device_bytes.len(),
            }));
        }
        let bare = devices.iter().map(|(_, device)| *device);
        match work {
            Work::Empty(plan) => {
                plan.write(&bare.collect::<Vec<_>>(), mkfs.fill.discard)?;
                let geometry = plan.geometry().clone();
                Ok(MadeVolume::new(geometry, identity, plan.layout(), None))
            }
            Work::Filled(input) => {
                let options = mkfs.fill_options(devices.iter().map(|(path, _)| *path));
                let sized: Vec<_> = bare.zip(device_bytes).collect();
                let filled = fill(&mkfs.options, &identity, &sized, input, &options, progress)?;
                let FilledVolume {
                    geometry,
                    layout,
                    stats,
                    shared,
                    left_out,
                    identity,
                } = filled;
                let contents = FilledContents {
                    directories: stats.directories,
                    files: stats.files,
                    data_bytes: stats.data_bytes,
                    shared,
                    left_out_acls: left_out,
                };
                Ok(MadeVolume::new(geometry, identity, &layout, Some(contents)))
            }
        }
    }
}

/// A volume that was created. [`Mkfs`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct MadeVolume {
    /// The options, including values derived from other options and from files.
    pub geometry: Geometry,
    /// The UUID of the volume.
    pub uuid: Uuid,
    /// The UUIDs of the devices.
    pub device_uuids: Vec<Uuid>,
    /// The number of bytes that the volume uses on each device. The ids of the devices count from 1.
    pub device_bytes: Vec<u64>,
    /// The bytes of all devices.
    pub total_bytes: u64,
    /// The bytes of block groups of data.
    pub data_bytes: u64,
    /// The bytes of block groups of metadata.
    pub metadata_bytes: u64,
    /// The bytes of block groups of data and metadata.
    pub mixed_bytes: u64,
    /// The bytes of block groups of the chunk tree.
    pub system_bytes: u64,
    /// The initial contents; `None` if the volume is empty.
    pub filled: Option<FilledContents>,
}

impl MadeVolume {
    fn new(
        geometry: Geometry,
        identity: Identity,
        layout: &VolumeChunks,
        filled: Option<FilledContents>,
    ) -> MadeVolume {
        let devices = layout.devices.iter();
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        MadeVolume {
            geometry,
            uuid: identity.fsid,
            device_uuids: identity.device_uuids,
            device_bytes: devices.map(|device| device.total_bytes).collect(),
            total_bytes: layout.total_bytes,
            data_bytes: layout.bytes_of_type(BlockGroupFlags::DATA),
            metadata_bytes: layout.bytes_of_type(BlockGroupFlags::METADATA),
            mixed_bytes: layout.bytes_of_type(mixed),
            system_bytes: layout.bytes_of_type(BlockGroupFlags::SYSTEM),
            filled,
        }
    }
}

/// The initial files of a new volume.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{BlockDevice, MemDevice, Mkfs, MkfsOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let host = tempfile::tempdir().expect("there is room");
/// # std::fs::write(host.path().join("file"), vec![7; 1 << 20]).expect("there is room");
/// let device = MemDevice::new(256 << 20);
/// let mkfs = Mkfs::new(MkfsOptions::default()).fill_from(host.path());
/// let made = mkfs.plan(&[device.len_bytes()])?.write(&[(Path::new("image"), &device)], &mut ())?;
/// let filled = made.filled.expect("it was filled");
/// assert_eq!((filled.files, filled.data_bytes), (1, 1 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FilledContents {
    /// The number of directories, including the root.
    pub directories: u64,
    /// The number of other files, counting hard links once.
    pub files: u64,
    /// The data on the devices, counting one copy.
    pub data_bytes: u64,
    /// The bytes that the image shares with the source files, if requested; an error if sharing failed.
    pub shared: Option<io::Result<u64>>,
    /// The files of an archive whose ACL was left out, if there are any.
    pub left_out_acls: Option<LeftOutAcls>,
}

//! New volumes: how they are made, empty or filled.
//!
//! Not here: opening them (`volume`), what a volume consists of (`ubtrfs-mkfs`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ubtrfs_device::{BlockDevice, memory_limit};
use ubtrfs_engine::{Compress, FileTime};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{InodeFlags, Timespec};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_mkfs::{
    ArchiveReader, FillObserver, FillOptions, FilledVolume, FlagsRequest, Growth, Identity, Input,
    LeftOutAcls, MkfsError, Plan, Scratch, SubvolumeRequest, TimeRule, VolumeChunks, fill,
};

use crate::error::{Cause, Caused, Naming, Result};
use crate::host_owners::HostOwners;
use crate::mkfs_options::{Geometry, MkfsOptions};
use crate::subvolume::Access;

/// How a volume is made, empty or filled, with an identity that is random or given.
///
/// [`Builder`](crate::Builder) makes and opens one in a step. [`Mkfs::plan`] is for programs that look first, and for
/// devices of which only a part is taken.
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
/// let made = planned.write(&[(Path::new("memory"), &device)])?;
/// assert_eq!((made.total_bytes, made.geometry.nodesize()), (256 << 20, 16 << 10));
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
    discard: bool,
    contents: Option<Contents>,
    compress: Option<Compress>,
    subvolumes: Vec<SubvolumeRequest>,
    flags: Vec<FlagsRequest>,
    dense: Vec<PathBuf>,
    owner: Option<(u32, u32)>,
    size: Size,
    reflink: bool,
    scratch_dir: Option<PathBuf>,
    observer: Option<SharedObserver>,
}

/// The directory of kernels, which boot loaders read.
const BOOT: &str = "boot";

/// The observer of a filling. Between two calls of it others may lock it.
#[derive(Clone)]
struct SharedObserver(Arc<Mutex<dyn FillObserver + Send>>);

impl fmt::Debug for SharedObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedObserver").finish_non_exhaustive()
    }
}

impl SharedObserver {
    fn lock(&self) -> MutexGuard<'_, dyn FillObserver + Send + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FillObserver for SharedObserver {
    fn begin(&mut self, path: &Path) {
        self.lock().begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.lock().transferred(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.lock().is_cancelled()
    }
}

/// The files that a volume is filled with.
#[derive(Clone, Debug)]
enum Contents {
    /// A folder or an archive.
    At(PathBuf),
    Archive(Arc<File>),
    /// Bytes of an archive, until they are read.
    Reader(Arc<Mutex<Option<ArchiveReader>>>),
}

/// How large a volume is made that is filled.
#[derive(Clone, Copy, Debug)]
struct Size {
    growth: Growth,
    shrink: bool,
}

impl Default for Size {
    fn default() -> Size {
        Size {
            growth: Growth::Never,
            shrink: false,
        }
    }
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

    /// Sets the UUID of the volume, which no other may have.
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

    /// Takes a time for the present, as builds do by `SOURCE_DATE_EPOCH`, so that the same options and files make the
    /// same volume, byte for byte. Whole seconds of it count.
    ///
    /// No file has a later time. UUIDs follow from that of the volume, and this one from options and files if it is not
    /// given. An empty volume has random ones unless it is given.
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
    ///     let made = mkfs.plan(&[device.len_bytes()])?.write(&[(Path::new("image"), &device)])?;
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

    /// Discards what the devices hold before, as mkfs.btrfs does unless it is told not to. It is not done by default.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Mkfs {
        self.discard = discard;
        self
    }

    /// Fills the volume with the files of a folder of this machine, or of a tar archive, compressed or not. That is
    /// faster than copying them: each tree is written once.
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

    /// Fills the volume with the files of a tar archive that is open: a file or a pipe, read from where it stands.
    #[must_use]
    pub fn fill_from_archive(mut self, archive: File) -> Mkfs {
        self.contents = Some(Contents::Archive(Arc::new(archive)));
        self
    }

    /// Fills the volume with the files of a tar archive that a reader gives, once. Data goes to its place as it comes,
    /// so that memory does not grow with it.
    ///
    /// ```
    /// use ubtrfs::{Mkfs, MkfsOptions, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let from = Volume::in_memory(256 << 20)?;
    /// from.root().write("/file", b"content")?;
    /// let mut archive = Vec::new();
    /// from.root().export_tar("/", &mut archive)?;
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

    /// Compresses the files that the volume is filled with. [`Builder::compress`](crate::Builder::compress) counts if
    /// this is not said.
    #[must_use]
    pub fn compress(mut self, compress: Compress) -> Mkfs {
        self.compress = Some(compress);
        self
    }

    /// Makes a directory of what the volume is filled with a subvolume. The path is that within it. May be repeated.
    #[must_use]
    pub fn make_subvolume(self, path: impl Into<PathBuf>, access: Access) -> Mkfs {
        self.request(path.into(), access, false)
    }

    /// Makes a directory the subvolume that a mount shows, as [`Mkfs::make_subvolume`].
    #[must_use]
    pub fn make_default_subvolume(self, path: impl Into<PathBuf>, access: Access) -> Mkfs {
        self.request(path.into(), access, true)
    }

    fn request(mut self, path: PathBuf, access: Access, is_default: bool) -> Mkfs {
        self.subvolumes.push(SubvolumeRequest {
            path,
            is_read_only: access == Access::ReadOnly,
            is_default,
        });
        self
    }

    /// Has a file, or all that is in a directory, overwritten in place, without checksums. The path is that within what
    /// the volume is filled with. May be repeated.
    #[must_use]
    pub fn no_data_cow(self, path: impl Into<PathBuf>) -> Mkfs {
        // Data that is overwritten in place cannot have a sum that is always right.
        self.flag(path.into(), InodeFlags::NODATACOW | InodeFlags::NODATASUM)
    }

    /// Gives a file, or all that is in a directory, no checksums, as [`Mkfs::no_data_cow`].
    #[must_use]
    pub fn no_data_sum(self, path: impl Into<PathBuf>) -> Mkfs {
        self.flag(path.into(), InodeFlags::NODATASUM)
    }

    fn flag(mut self, path: PathBuf, flags: InodeFlags) -> Mkfs {
        self.flags.push(FlagsRequest { path, flags });
        self
    }

    /// Has the holes of a file, or of all files in a directory, written out as zeros, up to 1 GiB a file. The path is that
    /// within what the volume is filled with, and need not be there. May be repeated. It is always done below `boot`, at
    /// the root and in each subvolume that is asked for: GRUB cannot read holes.
    #[must_use]
    pub fn dense(mut self, path: impl Into<PathBuf>) -> Mkfs {
        self.dense.push(path.into());
        self
    }

    /// Gives all files that the volume is filled with to this user and group, in place of their own. ACLs are kept.
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
        self.owner = Some((uid, gid));
        self
    }

    /// Has an image share blocks with the files of the folder that it is filled from, where both are on a file system
    /// that can. [`FilledContents::shared`] tells whether it did.
    #[must_use]
    pub fn reflink(mut self, reflink: bool) -> Mkfs {
        self.reflink = reflink;
        self
    }

    /// Says whether images may become longer than they are, to hold what they are filled with. They may not by default.
    #[must_use]
    pub fn growth(mut self, growth: Growth) -> Mkfs {
        self.size.growth = growth;
        self
    }

    /// Cuts a volume that is filled to the least size at which it can still be written to.
    #[must_use]
    pub fn shrink(mut self, shrink: bool) -> Mkfs {
        self.size.shrink = shrink;
        self
    }

    /// Sets where temporary files go while a volume is filled; by default the system's folder for them.
    #[must_use]
    pub fn scratch_dir(mut self, folder: impl Into<PathBuf>) -> Mkfs {
        self.scratch_dir = Some(folder.into());
        self
    }

    /// Has an observer hear how far the filling of the volume is, and end it. [`FillObserver`] has an example.
    #[must_use]
    pub fn observe(mut self, observer: Arc<Mutex<dyn FillObserver + Send>>) -> Mkfs {
        self.observer = Some(SharedObserver(observer));
        self
    }

    /// Sets the compression of the builder, unless there is one of its own.
    pub(crate) fn or_compress(mut self, compress: Compress) -> Mkfs {
        self.compress.get_or_insert(compress);
        self
    }

    /// Returns the options with every default filled in and every limit checked, for so many devices.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or are too much for so many devices (`InvalidInput`).
    pub fn geometry(&self, devices: usize) -> Result<Geometry> {
        let geometry = self.options.to_lower().resolve(devices);
        geometry.map(Geometry::of).naming_alone("make a volume")
    }

    /// Plans a volume on devices of which so many bytes each are taken, and writes nothing. An empty volume is planned
    /// whole. Of one that is filled, files are first read by [`PlannedVolume::write`], which tells whether they fit.
    ///
    /// # Errors
    ///
    /// - those of [`Mkfs::geometry`]
    /// - a device is too small (`StorageFull`), or there are UUIDs for another number of devices (`InvalidInput`)
    /// - what the volume is to be filled with cannot be opened
    pub fn plan(&self, device_bytes: &[u64]) -> Result<PlannedVolume> {
        let planned = self.planned(device_bytes);
        planned.naming_alone("make a volume")
    }

    /// Plans a volume and writes it, for an operation that names the devices.
    pub(crate) fn make(
        &self,
        device_bytes: &[u64],
        devices: &[(&Path, &dyn BlockDevice)],
    ) -> Caused<()> {
        let planned = self.planned(device_bytes)?;
        let mut observer = self.observer.clone();
        let observer = observer.as_mut().map(|of| of as &mut dyn FillObserver);
        planned.written(devices, observer)?;
        Ok(())
    }

    fn planned(&self, device_bytes: &[u64]) -> Caused<PlannedVolume> {
        let identity = self.identity(device_bytes.len())?;
        let work = match &self.contents {
            None => Work::Empty(Box::new(Plan::new(
                &self.options.to_lower(),
                &identity,
                device_bytes,
            )?)),
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
        // Whole seconds, as mkfs.btrfs has it.
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
            .subvolumes
            .iter()
            .map(|request| request.path.join(BOOT));
        let boot = std::iter::once(PathBuf::from(BOOT)).chain(roots);
        boot.chain(self.dense.iter().cloned()).collect()
    }

    /// Returns the options of filling the volume. `images` are the paths of the devices: such files cannot be among
    /// those that fill them.
    fn fill_options<'p>(&self, images: impl Iterator<Item = &'p Path>) -> FillOptions {
        let compression = self.compress.map(|of| (of.algorithm, of.level));
        let images = images.filter_map(|path| path.metadata().ok());
        let images = images.filter(fs::Metadata::is_file);
        let scratch_dir = self.scratch_dir.clone();
        let scratch = Scratch::new(scratch_dir.unwrap_or_else(std::env::temp_dir));
        let times = self.repeatable.map(|latest| FileTime::from(latest).sec);
        FillOptions {
            compression: compression.filter(|(algorithm, _)| *algorithm != Compression::None),
            subvolumes: self.subvolumes.clone(),
            flags: self.flags.clone(),
            dense: self.dense_paths(),
            owner: self.owner,
            reflink: self.reflink,
            shrink: self.size.shrink,
            growth: self.size.growth,
            times: times.map_or(TimeRule::Keep, TimeRule::Clamp),
            scratch: scratch.limit_memory(memory_limit()),
            targets: images.map(|file| (file.dev(), file.ino())).collect(),
            discard: self.discard,
            owners: HostOwners::load().numbers(),
        }
    }
}

impl Contents {
    fn open(&self) -> Caused<Input> {
        match self {
            Contents::At(path) => {
                let metadata = path.metadata().naming("read", path)?;
                Ok(match metadata.is_dir() {
                    true => Input::Folder(path.clone()),
                    false => Input::Archive(File::open(path).naming("open", path)?),
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

/// A volume that is planned, and not written yet. [`Mkfs`] has an example.
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
    /// Writes the volume to its devices. Their old contents are lost. The paths are those of images, which are not
    /// among the files that fill them, or else names.
    ///
    /// # Errors
    ///
    /// - there are more or fewer devices than were planned, or one is shorter (`InvalidInput`): nothing was written
    /// - a device fails
    /// - what the volume is filled with cannot be read, changes meanwhile, or does not fit (`StorageFull`)
    /// - an observer ends it (`Interrupted`)
    ///
    /// After an error of the last three kinds, the devices hold no volume, or their old contents whole.
    pub fn write(self, devices: &[(&Path, &dyn BlockDevice)]) -> Result<MadeVolume> {
        let mut observer = self.mkfs.observer.clone();
        let observer = observer.as_mut().map(|of| of as &mut dyn FillObserver);
        let written = self.written(devices, observer);
        written.naming_alone("make a volume")
    }

    /// Writes the volume as [`PlannedVolume::write`], and has this observer hear how far the filling is.
    ///
    /// # Errors
    ///
    /// As [`PlannedVolume::write`].
    pub fn write_with(
        self,
        devices: &[(&Path, &dyn BlockDevice)],
        observer: &mut dyn FillObserver,
    ) -> Result<MadeVolume> {
        let written = self.written(devices, Some(observer));
        written.naming_alone("make a volume")
    }

    fn written(
        self,
        devices: &[(&Path, &dyn BlockDevice)],
        observer: Option<&mut dyn FillObserver>,
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
                plan.write(&bare.collect::<Vec<_>>(), mkfs.discard)?;
                let geometry = plan.geometry().clone();
                Ok(MadeVolume::new(geometry, identity, plan.layout(), None))
            }
            Work::Filled(input) => {
                let options = mkfs.fill_options(devices.iter().map(|(path, _)| *path));
                let sized: Vec<_> = bare.zip(device_bytes).collect();
                let lower = mkfs.options.to_lower();
                let filled = fill(&lower, &identity, &sized, input, &options, observer)?;
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

/// A volume that was made. [`Mkfs`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct MadeVolume {
    /// The options with what followed from others and from files.
    pub geometry: Geometry,
    /// The UUID of the volume.
    pub uuid: Uuid,
    /// The UUIDs of the devices.
    pub device_uuids: Vec<Uuid>,
    /// The bytes of each device that the volume takes. The ids of the devices count from 1.
    pub device_bytes: Vec<u64>,
    /// The bytes of all devices.
    pub total_bytes: u64,
    /// The bytes of block groups of data.
    pub data_bytes: u64,
    /// The bytes of block groups of trees.
    pub metadata_bytes: u64,
    /// The bytes of block groups of data and trees.
    pub mixed_bytes: u64,
    /// The bytes of block groups of the tree of chunks.
    pub system_bytes: u64,
    /// The contents that it was filled with; None if it is empty.
    pub filled: Option<FilledContents>,
}

impl MadeVolume {
    fn new(
        geometry: ubtrfs_mkfs::Geometry,
        identity: Identity,
        layout: &VolumeChunks,
        filled: Option<FilledContents>,
    ) -> MadeVolume {
        let devices = layout.devices.iter();
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        MadeVolume {
            geometry: Geometry::of(geometry),
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

/// The files that a new volume was filled with.
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
/// let made = mkfs.plan(&[device.len_bytes()])?.write(&[(Path::new("image"), &device)])?;
/// let filled = made.filled.expect("it was filled");
/// assert_eq!((filled.files, filled.data_bytes), (1, 1 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FilledContents {
    /// How many directories there are, the root among them.
    pub directories: u64,
    /// How many files there are that are no directories, each once.
    pub files: u64,
    /// The data on the devices, one copy of it.
    pub data_bytes: u64,
    /// The bytes that the image shares with the files of the folder, if that was wanted; an error if it cannot.
    pub shared: Option<io::Result<u64>>,
    /// The files of an archive that lack an ACL, if there are any.
    pub left_out_acls: Option<LeftOutAcls>,
}

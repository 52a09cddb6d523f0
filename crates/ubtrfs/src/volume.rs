//! Open volumes, and operations that concern all their subvolumes.

mod builder;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use ubtrfs_device::DeviceName;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::maker::MadeBy;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{Error as EngineError, FileId};

use crate::error::{Cause, Error, Naming, Result};
use crate::handle::Engine;
use crate::subvolume::{Subvolume, SubvolumeInfo};

pub use builder::{Builder, ClearedLog};

/// An open volume. Its files are in subvolumes: [`Volume::root`] is the top level.
///
/// Cheap to clone: clones are the same volume. It is closed by [`Volume::close`], or when the last clone, [`Subvolume`]
/// and [`File`](crate::File) are dropped. All methods may be called from many threads.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?; // sparse
/// volume.root().write("/file", b"content")?;
/// volume.close()?;
///
/// let volume = Volume::open_read_only(&path)?;
/// assert_eq!(volume.root().read("/file")?, b"content");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    root: Subvolume,
}

/// The reason why a group has no result.
enum GroupEnd<E> {
    /// Its work failed.
    Work(E),
    /// It is not durable.
    Engine(EngineError),
}

impl<E> From<EngineError> for GroupEnd<E> {
    fn from(error: EngineError) -> GroupEnd<E> {
        GroupEnd::Engine(error)
    }
}

impl Volume {
    /// Creates a builder, which sets options for opening or creating a volume.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a volume for reading and writing, exclusively; see [`Builder::open`].
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open(device: impl Into<DeviceName>) -> Result<Volume> {
        Volume::builder().open(&[device.into()])
    }

    /// Opens a volume read-only. Other processes may also open it read-only.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open_read_only(device: impl Into<DeviceName>) -> Result<Volume> {
        Volume::builder().read_only(true).open(&[device.into()])
    }

    /// Creates a volume in a new file; see [`Builder::create`].
    ///
    /// # Errors
    ///
    /// As [`Builder::create`].
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Volume> {
        Volume::builder().create(&[path], len_bytes)
    }

    /// Creates a volume in memory; see [`Builder::in_memory`].
    ///
    /// # Errors
    ///
    /// As [`Builder::in_memory`].
    pub fn in_memory(len_bytes: u64) -> Result<Volume> {
        Volume::builder().in_memory(len_bytes)
    }

    fn new(engine: Arc<ubtrfs_fs::Volume>) -> Volume {
        Volume::on(Engine::new(engine))
    }

    /// Creates a handle on an engine that the server of a mount has opened and will close. Commands on paths in the
    /// mount run in the server, on this same engine.
    #[doc(hidden)]
    pub fn of_engine(engine: &Arc<ubtrfs_fs::Volume>) -> Volume {
        Volume::on(Engine::borrowed(Arc::clone(engine)))
    }

    fn on(engine: Engine) -> Volume {
        // Other subvolumes and the reports are available even if the top level is damaged; using it returns the error.
        let root = engine.root_dir(RootId::FS_TREE);
        let root = root.unwrap_or(FileId::new(RootId::FS_TREE, InodeNr::FIRST_FREE));
        Volume {
            root: Subvolume { engine, root },
        }
    }

    /// Returns the engine, for the server of a mount and for commands that display trees and blocks. Its interface
    /// follows the on-disk format and is not stable. It accepts no changes after the last handle of this library is
    /// dropped, which closes it.
    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<ubtrfs_fs::Volume> {
        &self.root.engine
    }

    /// Returns the top level, the subvolume that contains all others.
    pub fn root(&self) -> &Subvolume {
        &self.root
    }

    /// Lists all subvolumes by ascending id, the top level first. Deleted subvolumes are listed until their space is
    /// free.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let all = self.engine().subvolumes();
        let all = all.naming_alone("list subvolumes")?;
        let plain = all
            .iter()
            .map(|info| SubvolumeInfo::of(&self.root.engine, info));
        Ok(plain.collect())
    }

    /// Reads the attributes of a subvolume by its id, including a deleted one whose space is not all free yet. Returns
    /// `None` if it does not exist. The cost does not depend on the number of subvolumes.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn subvolume_info(&self, id: u64) -> Result<Option<SubvolumeInfo>> {
        let info = self.engine().subvolume_info(RootId(id));
        let info = info.naming_alone("examine subvolume")?;
        Ok(info.map(|info| SubvolumeInfo::of(&self.root.engine, &info)))
    }

    /// Opens a subvolume by its id.
    ///
    /// # Errors
    ///
    /// It does not exist (`NotFound`).
    pub fn subvolume_by_id(&self, id: u64) -> Result<Subvolume> {
        let opened = self
            .open_subvolume(RootId(id))
            .map_err(|error| match error {
                EngineError::NoSuchSubvolume(_) => Cause::NoSubvolume(id),
                other => other.into(),
            });
        opened.naming_alone("open subvolume")
    }

    /// Opens the default subvolume, which mounts use unless another one is named.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn default_subvolume(&self) -> Result<Subvolume> {
        let id = self.engine().default_subvolume();
        let opened = id.and_then(|id| self.open_subvolume(id));
        opened.naming_alone("open the default subvolume")
    }

    /// Returns the id of the default subvolume, which mounts use unless another one is named. The subvolume may be
    /// damaged.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn default_subvolume_id(&self) -> Result<u64> {
        let id = self.engine().default_subvolume();
        id.map(|id| id.0).naming_alone("find the default subvolume")
    }

    fn open_subvolume(&self, id: RootId) -> std::result::Result<Subvolume, EngineError> {
        // A tree that is not a subvolume has no root directory, and a deleted subvolume cannot be entered.
        self.engine().subvolume_tree(id)?;
        Subvolume::of_id(&self.root.engine, id)
    }

    /// Sets the default subvolume, which mounts use unless another one is named.
    ///
    /// # Errors
    ///
    /// It was deleted, or belongs to another volume, or the volume is read-only.
    pub fn set_default_subvolume(&self, subvolume: &Subvolume) -> Result<()> {
        let _entered = self.engine().enter();
        let set = self
            .root
            .check_same_volume(subvolume)
            .and_then(|()| Ok(self.engine().set_default(subvolume.root.root)?));
        set.naming_alone("set the default subvolume")
    }

    /// Returns the UUID of the volume.
    pub fn uuid(&self) -> Uuid {
        self.engine().superblock().fsid
    }

    /// Returns the label of the volume as of the last commit, or an empty one.
    pub fn label(&self) -> OsString {
        OsString::from_vec(self.engine().superblock().label().to_vec())
    }

    /// Returns the system of a NAS maker that made the volume, and whether another system has written to it since, as
    /// text. Such a volume is only read.
    ///
    /// ```
    /// let volume = ubtrfs::Volume::in_memory(256 << 20)?;
    /// assert_eq!(volume.made_by(), None);
    /// # Ok::<(), ubtrfs::Error>(())
    /// ```
    pub fn made_by(&self) -> Option<String> {
        let made_by = MadeBy::of(&self.engine().superblock())?;
        Some(made_by.to_string())
    }

    /// Sets the label, which [`Volume::label`] returns once it is committed.
    ///
    /// # Errors
    ///
    /// The label is longer than 255 bytes, or contains a NUL.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let _entered = self.engine().enter();
        let set = self.engine().set_label(label.as_ref().as_bytes());
        set.naming_alone("set the label")
    }

    /// Resets the error counters of all devices, like `btrfs device stats -z`. They are saved with the next commit.
    ///
    /// A device with errors of writes, flushes or generations is read only as a last resort until then.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// volume.reset_device_errors()?;
    /// volume.sync()?;
    /// assert_eq!(volume.device_errors()?[0].write_errors, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The volume is read-only, or has no space left.
    pub fn reset_device_errors(&self) -> Result<()> {
        let _entered = self.engine().enter();
        let devices = self.engine().pool().devices().into_iter();
        let mut reset = devices.map(|device| self.engine().reset_device_errors(device.devid));
        let failed = reset.find_map(std::result::Result::err);
        failed
            .map_or(Ok(()), Err)
            .naming_alone("reset the errors of devices")
    }

    /// Returns whether both are handles on the same open volume.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// assert!(volume.is_same(&volume.clone()));
    /// assert!(!volume.is_same(&Volume::in_memory(256 << 20)?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_same(&self, other: &Volume) -> bool {
        self.root.engine.is_same(&other.root.engine)
    }

    /// Returns whether the volume is stored in this file or device of the host. A program must not write to the files
    /// of an open volume, and a copy into the volume does not read them.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("volume.img");
    /// let volume = Volume::create(&path, 256 << 20)?;
    /// assert!(volume.lies_on(&path.metadata()?));
    /// assert!(!volume.lies_on(&std::env::current_exe()?.metadata()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lies_on(&self, file: &std::fs::Metadata) -> bool {
        self.root.engine.lies_on(file)
    }

    /// Returns whether the volume was opened read-only.
    pub fn is_read_only(&self) -> bool {
        !self.engine().is_writable()
    }

    /// Writes all buffered data and commits all earlier changes. Returns when they are durable.
    ///
    /// # Errors
    ///
    /// - the volume is read-only or closed, or a commit failed before (`ReadOnlyFilesystem`)
    /// - a device fails; after a failed commit, the volume is read-only and durable changes are kept
    /// - data of some file is lost; everything else is durable then
    pub fn sync(&self) -> Result<()> {
        let _entered = self.engine().enter();
        self.engine().sync().naming_alone("sync the volume")
    }

    /// Runs `work`, and commits all its changes atomically: after a power cut either all of them exist or none does.
    /// Returns when they are durable.
    ///
    /// While it runs, changes by other threads wait, and so do syncs. `work` makes its changes on the calling thread:
    /// it must not wait for another thread that changes this volume. Reads do not wait. A nested group becomes a part
    /// of the outer one.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let root = volume.root();
    /// root.write("/balance", b"100")?;
    /// volume.group(|| {
    ///     root.write("/balance", b"70")?;
    ///     root.write("/paid", b"30")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Limits:
    /// - An operation that commits by itself is refused inside a group (`QuotaExceeded`): [`Volume::sync`],
    ///   [`File::sync_all`](crate::File::sync_all), creating subvolumes and snapshots, [`Subvolume::receive`],
    ///   [`Snapshot::open`](crate::Snapshot::open).
    /// - Changes of names, attributes and extents may use at most half of the memory for a transaction: 64 MiB, or less
    ///   with [`Builder::memory_bytes`]. That is about 90,000 new small files. The size of data does not count.
    /// - Space that the group frees can be used only after it.
    /// - Data of files without copy on write is overwritten in place, and so not part of the group.
    ///
    /// # Errors
    ///
    /// - the errors of `work` and of [`Volume::sync`]
    /// - the group is too large (`QuotaExceeded`)
    /// - it is called inside another operation, for example by the reader of [`Subvolume::receive`] (`InvalidInput`)
    ///
    /// Nothing is rolled back: changes that `work` made before an error are kept, and become durable with the next
    /// commit, not atomically. If there is no space for the items of its data, the volume refuses further changes
    /// (`ReadOnlyFilesystem`), and opening it again shows the state before.
    pub fn group<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.group_with(work)
    }

    /// Runs `work` as [`Volume::group`], for work with errors of its own.
    ///
    /// ```
    /// use std::io;
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> io::Result<()> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let count: u32 = volume.group_with(|| {
    ///     volume.root().write("/count", b"7")?;
    ///     "7".parse().map_err(io::Error::other)
    /// })?;
    /// assert_eq!(count, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Volume::group`].
    pub fn group_with<T, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let work = || work().map_err(GroupEnd::Work);
        self.engine().group(work).map_err(|end| match end {
            GroupEnd::Work(error) => error,
            GroupEnd::Engine(error) => {
                let Err(error) = Err::<Infallible, _>(error).naming_alone("commit a group");
                error.into()
            }
        })
    }

    /// Runs commits until the space of all deleted subvolumes is free.
    ///
    /// # Errors
    ///
    /// As [`Volume::sync`].
    pub fn free_deleted_subvolumes(&self) -> Result<()> {
        let _entered = self.engine().enter();
        let freed = self.engine().free_deleted_subvolumes();
        freed.naming_alone("free deleted subvolumes")
    }

    /// Closes the volume after committing everything, for all clones, subvolumes and open files. They can no longer
    /// change it. The devices are released when the last of these is dropped.
    ///
    /// For a volume that is open read-only nothing is committed, and nothing can fail. Its files stay readable until
    /// the last of these is dropped.
    ///
    /// # Errors
    ///
    /// As [`Volume::sync`]. The volume is closed nevertheless.
    pub fn close(self) -> Result<()> {
        let _entered = self.engine().enter();
        self.engine().close().naming_alone("close the volume")
    }
}

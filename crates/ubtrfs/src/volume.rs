//! An open volume: what is one for all its subvolumes.

mod builder;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use ubtrfs_engine::{Error as EngineError, FileId};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::uuid::Uuid;

use crate::error::{Cause, Error, Naming, Result};
use crate::handle::Engine;
use crate::subvolume::{Subvolume, SubvolumeInfo};

pub use builder::{Builder, ClearedLog};

/// An open volume. Its files are reached through subvolumes: [`Volume::root`] is the top level.
///
/// Cheap to clone: clones are the same volume. It is closed when the last clone is dropped, and with it the last
/// [`Subvolume`] and [`File`](crate::File), or by [`Volume::close`]. All methods may be called from many threads.
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

/// Why a group has no value.
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
    /// Begins to say how a volume is opened or made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a volume for reading and writing, alone; see [`Builder::open`].
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::builder().open(path)
    }

    /// Opens a volume for reading. Others may read it meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::builder().read_only().open(path)
    }

    /// Makes a volume in a new file; see [`Builder::create`].
    ///
    /// # Errors
    ///
    /// As [`Builder::create`].
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Volume> {
        Volume::builder().create(path, len_bytes)
    }

    /// Makes a volume in memory; see [`Builder::in_memory`].
    ///
    /// # Errors
    ///
    /// As [`Builder::in_memory`].
    pub fn in_memory(len_bytes: u64) -> Result<Volume> {
        Volume::builder().in_memory(len_bytes)
    }

    fn new(engine: Arc<ubtrfs_engine::Volume>) -> Volume {
        Volume::on(Engine::new(engine))
    }

    /// Creates a handle on an engine that the server of a mount has opened, and closes. Commands on paths in the mount
    /// run in the server, on this very engine.
    #[doc(hidden)]
    pub fn of_engine(engine: &Arc<ubtrfs_engine::Volume>) -> Volume {
        Volume::on(Engine::borrowed(Arc::clone(engine)))
    }

    fn on(engine: Engine) -> Volume {
        // Other subvolumes and the reports can be had where the top level is damaged, which its own use tells.
        let root = engine.root_dir(RootId::FS_TREE);
        let root = root.unwrap_or(FileId::new(RootId::FS_TREE, InodeNr::FIRST_FREE));
        Volume {
            root: Subvolume { engine, root },
        }
    }

    /// Returns the engine below, for the server of a mount and for commands that show trees and blocks. Its interface
    /// follows the on-disk format and is not stable. It takes no changes once the last handle of this library is
    /// dropped, which closes it.
    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<ubtrfs_engine::Volume> {
        &self.root.engine
    }

    /// Returns the top level, which is the subvolume that holds all others.
    pub fn root(&self) -> &Subvolume {
        &self.root
    }

    /// Lists all subvolumes by ascending id, the top level first. Deleted ones are among them until their space is
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

    /// Reads what is known of the subvolume of an id, also of one that is deleted and not all free yet. None if there is
    /// none. It takes the same time however many subvolumes there are.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn subvolume_info(&self, id: u64) -> Result<Option<SubvolumeInfo>> {
        let info = self.engine().subvolume_info(RootId(id));
        let info = info.naming_alone("examine subvolume")?;
        Ok(info.map(|info| SubvolumeInfo::of(&self.root.engine, &info)))
    }

    /// Opens the subvolume of an id.
    ///
    /// # Errors
    ///
    /// There is none (`NotFound`).
    pub fn subvolume_by_id(&self, id: u64) -> Result<Subvolume> {
        let opened = self
            .open_subvolume(RootId(id))
            .map_err(|error| match error {
                EngineError::NoSuchSubvolume(_) => Cause::NoSubvolume(id),
                other => other.into(),
            });
        opened.naming_alone("open subvolume")
    }

    /// Opens the subvolume that a mount shows if none is named.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn default_subvolume(&self) -> Result<Subvolume> {
        let id = self.engine().default_subvolume();
        let opened = id.and_then(|id| self.open_subvolume(id));
        opened.naming_alone("open the default subvolume")
    }

    /// Returns the id of the subvolume that a mount shows if none is named. That subvolume need not be sound.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn default_subvolume_id(&self) -> Result<u64> {
        let id = self.engine().default_subvolume();
        id.map(|id| id.0).naming_alone("find the default subvolume")
    }

    fn open_subvolume(&self, id: RootId) -> std::result::Result<Subvolume, EngineError> {
        // A tree that is no subvolume has no root directory, and one that is deleted cannot be entered.
        self.engine().subvolume_tree(id)?;
        Subvolume::of_id(&self.root.engine, id)
    }

    /// Has a mount show this subvolume if none is named.
    ///
    /// # Errors
    ///
    /// It was deleted, or is of another volume, or the volume is read-only.
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

    /// Returns the label of the volume as of the last commit. It is empty if the volume has none.
    pub fn label(&self) -> OsString {
        OsString::from_vec(self.engine().superblock().label().to_vec())
    }

    /// Gives the volume another label, which [`Volume::label`] shows once it is committed.
    ///
    /// # Errors
    ///
    /// More than 255 bytes, or a NUL among them.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let _entered = self.engine().enter();
        let set = self.engine().set_label(label.as_ref().as_bytes());
        set.naming_alone("set the label")
    }

    /// Sets the error counts of all devices to 0, as `btrfs device stats -z`. They are saved with the next commit.
    ///
    /// A device with errors of writes, flushes or generations is read last until then.
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

    /// Tells whether both are handles on one open volume.
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

    /// Tells whether the volume lies on this file or device of the machine. A program does not write one that is open,
    /// and a copy into the volume does not read it.
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

    /// Tells whether the volume was opened for reading.
    pub fn is_read_only(&self) -> bool {
        !self.engine().is_writable()
    }

    /// Writes all buffered data and commits everything done before the call. Returns when it is durable.
    ///
    /// # Errors
    ///
    /// - the volume is read-only or closed, or a commit failed before (`ReadOnlyFilesystem`)
    /// - a device fails; after a failed commit, the volume is read-only and what was durable stays
    /// - data of some file is lost; all the rest is durable then
    pub fn sync(&self) -> Result<()> {
        let _entered = self.engine().enter();
        self.engine().sync().naming_alone("sync the volume")
    }

    /// Does `work`, and commits all that it did at once: after a power cut there is all of it or nothing. Returns when
    /// it is durable.
    ///
    /// While it runs, changes by other threads wait, and so do syncs. `work` makes its changes on the thread that
    /// called: it must not wait for another thread that changes this volume. Reading goes on. A group within a group is
    /// a part of it.
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
    /// - An operation that commits by itself is refused within (`QuotaExceeded`): [`Volume::sync`],
    ///   [`File::sync_all`](crate::File::sync_all), making subvolumes and snapshots, [`Subvolume::receive`],
    ///   [`Snapshot::open`](crate::Snapshot::open).
    /// - Changes of names, attributes and extents take at most half of the memory for a transaction: 64 MiB, or less
    ///   after [`Builder::limit_memory`]. That is some 90,000 new small files. The size of data does not count.
    /// - Space that the group frees can be used only after it.
    /// - Data of files without copy on write is overwritten in place, and so not part of it.
    ///
    /// # Errors
    ///
    /// - those of `work`, and of [`Volume::sync`]
    /// - the group is too large (`QuotaExceeded`)
    /// - it is called within another operation, as by what [`Subvolume::receive`] reads from (`InvalidInput`)
    ///
    /// Nothing is rolled back: what `work` did before an error stays, and becomes durable with the next commit, without
    /// the promise of a group. If its data finds no space for its items, the volume takes no more changes
    /// (`ReadOnlyFilesystem`), and opening it anew shows what was before.
    pub fn group<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.group_with(work)
    }

    /// Does `work` as [`Volume::group`], for work with errors of its own.
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

    /// Closes the volume after a commit of everything, for all clones, subvolumes and open files. From then on they
    /// change nothing. The devices are free when the last of these is dropped.
    ///
    /// Of a volume that is open read-only nothing is committed, and nothing can fail. Its files stay readable until the
    /// last of these is dropped.
    ///
    /// # Errors
    ///
    /// As [`Volume::sync`]. The volume is closed all the same.
    pub fn close(self) -> Result<()> {
        let _entered = self.engine().enter();
        self.engine().close().naming_alone("close the volume")
    }
}

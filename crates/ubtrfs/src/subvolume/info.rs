//! Plain values of a subvolume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

use ubtrfs_engine::{Error as EngineError, FileTime, SubvolumeInfo as EngineInfo};
use ubtrfs_format::item::{RootItemFlags, Timespec};
use ubtrfs_format::uuid::Uuid;

use crate::handle::Engine;

/// What is known of a subvolume.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Access, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// let before = volume.root().snapshot("/data", "/before", Access::ReadOnly)?.info()?;
/// assert_eq!(before.path.as_deref(), Some(Path::new("before")));
/// assert_eq!(before.parent_uuid, Some(data.info()?.uuid));
/// assert!(before.is_read_only);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumeInfo {
    /// The number within the volume. The top level has 5.
    pub id: u64,
    /// The path from the root of the top level, without a slash before it; empty for the top level itself. None if it has no
    /// place: it is being deleted.
    pub path: Option<PathBuf>,
    /// What tells it from all subvolumes of all volumes.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<Uuid>,
    /// The UUID of the subvolume that it was received from.
    pub received_uuid: Option<Uuid>,
    /// Nothing in it can be changed.
    pub is_read_only: bool,
    /// It is deleted, and its space not all free yet.
    pub is_deleted: bool,
    /// The transaction that changed it last.
    pub generation: u64,
    /// The transaction that made it.
    pub created_generation: u64,
    /// When it was made.
    pub created: SystemTime,
    /// When a file of it was changed last.
    pub changed: SystemTime,
}

impl SubvolumeInfo {
    pub(crate) fn of(engine: &Engine, info: &EngineInfo) -> Result<SubvolumeInfo, EngineError> {
        let item = &info.item;
        let is_deleted = item.refs.get() == 0;
        let path = match engine.subvolume_path(info.id) {
            Ok(path) => Some(PathBuf::from(OsStr::from_bytes(&path))),
            Err(_) if is_deleted || info.place.is_none() => None,
            Err(error) => return Err(error),
        };
        let some = |uuid: Uuid| Some(uuid).filter(|uuid| !uuid.is_nil());
        let time = |time: Timespec| SystemTime::from(FileTime::from(time));
        Ok(SubvolumeInfo {
            id: info.id.0,
            path: path.filter(|_| !is_deleted),
            uuid: item.uuid,
            parent_uuid: some(item.parent_uuid),
            received_uuid: some(item.received_uuid),
            is_read_only: item.flags().contains(RootItemFlags::RDONLY),
            is_deleted,
            generation: item.generation.get(),
            created_generation: item.otransid.get(),
            created: time(item.otime),
            changed: time(item.ctime),
        })
    }
}

//! Attributes of a subvolume, as plain values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::SystemTime;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{RootItemFlags, Timespec};
use ubtrfs_format::maker::is_hidden;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{FileTime, SubvolumeInfo as EngineInfo};

use crate::handle::Engine;

/// The attributes of a subvolume.
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
    /// The id within the volume. The top level has 5.
    pub id: u64,
    /// The path from the root of the top level, without a leading slash; empty for the top level itself. `None` if it
    /// is being deleted, or if a directory above cannot be read.
    pub path: Option<PathBuf>,
    /// The subvolume that contains it; `None` for the top level, and while it is being deleted.
    pub parent_id: Option<u64>,
    /// The unique UUID of the subvolume.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<Uuid>,
    /// The UUID of the subvolume that it was received from.
    pub received_uuid: Option<Uuid>,
    /// Whether it was created as a snapshot.
    pub is_snapshot: bool,
    /// Whether nothing in it can be changed.
    pub is_read_only: bool,
    /// Whether the system of a NAS maker hides it.
    pub is_hidden: bool,
    /// Whether it is deleted, but its space is not all free yet.
    pub is_deleted: bool,
    /// The transaction that last changed it.
    pub generation: u64,
    /// The transaction that created it.
    pub created_generation: u64,
    /// The time of creation.
    pub created: SystemTime,
    /// The time of the last change to one of its files.
    pub changed: SystemTime,
    /// The transaction of the sent subvolume, on the sending volume; 0 if it was not received.
    pub sent_generation: u64,
    /// The time of sending, if known.
    pub sent: Option<SystemTime>,
    /// The transaction at the end of receiving; 0 if it was not received.
    pub received_generation: u64,
    /// The time of receiving.
    pub received: Option<SystemTime>,
}

impl SubvolumeInfo {
    pub(crate) fn of(engine: &Engine, info: &EngineInfo) -> SubvolumeInfo {
        // A damaged directory must not make the whole list fail.
        let path = engine.subvolume_path(info.id).ok();
        let is_deleted = info.item.refs.get() == 0;
        let path = path.filter(|_| !is_deleted && (info.place.is_some() || is_top(info.id)));
        SubvolumeInfo::of_engine(
            info,
            path.map(|path| PathBuf::from(OsString::from_vec(path))),
        )
    }

    /// Converts the engine's description, for commands that get it from the kernel's ioctls. Its interface is not
    /// stable.
    #[doc(hidden)]
    pub fn of_engine(info: &EngineInfo, path: Option<PathBuf>) -> SubvolumeInfo {
        let item = &info.item;
        let some = |uuid: Uuid| Some(uuid).filter(|uuid| !uuid.is_nil());
        let time = |time: Timespec| SystemTime::from(FileTime::from(time));
        let if_set = |at: Timespec| (at.sec.get() != 0).then(|| time(at));
        SubvolumeInfo {
            id: info.id.0,
            path,
            parent_id: info.place.as_ref().map(|place| place.dir.root.0),
            uuid: item.uuid,
            parent_uuid: some(item.parent_uuid),
            received_uuid: some(item.received_uuid),
            is_snapshot: info.snapshot_transid.is_some(),
            is_read_only: item.flags().contains(RootItemFlags::RDONLY),
            is_hidden: is_hidden(item.flags()),
            is_deleted: item.refs.get() == 0,
            generation: item.generation.get(),
            created_generation: match (item.otransid.get(), info.snapshot_transid) {
                // Volumes of old kernels record it for snapshots only.
                (0, Some(transid)) => transid.0,
                (otransid, _) => otransid,
            },
            created: time(item.otime),
            changed: time(item.ctime),
            sent_generation: item.stransid.get(),
            sent: if_set(item.stime),
            received_generation: item.rtransid.get(),
            received: if_set(item.rtime),
        }
    }
}

fn is_top(id: RootId) -> bool {
    id == RootId::FS_TREE
}

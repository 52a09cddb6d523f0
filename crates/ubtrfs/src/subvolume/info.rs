//! Plain values of a subvolume.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::SystemTime;

use ubtrfs_engine::{FileTime, SubvolumeInfo as EngineInfo};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{RootItemFlags, Timespec};
use ubtrfs_format::uuid::Uuid;

use crate::handle::Engine;

/// The facts of a subvolume.
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
    /// place, being deleted, or if what is above cannot be read.
    pub path: Option<PathBuf>,
    /// The subvolume that holds it; None if it has no place, as the top level.
    pub parent_id: Option<u64>,
    /// The UUID, which no other subvolume of any volume has.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<Uuid>,
    /// The UUID of the subvolume that it was received from.
    pub received_uuid: Option<Uuid>,
    /// It was made as a snapshot.
    pub is_snapshot: bool,
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
    /// The transaction that the one it was received from was of, on the volume that sent it; 0 if it was not received.
    pub sent_generation: u64,
    /// When it was sent, if that is known.
    pub sent: Option<SystemTime>,
    /// The transaction that ended its receiving; 0 if it was not received.
    pub received_generation: u64,
    /// When it was received.
    pub received: Option<SystemTime>,
}

impl SubvolumeInfo {
    pub(crate) fn of(engine: &Engine, info: &EngineInfo) -> SubvolumeInfo {
        let item = &info.item;
        let is_deleted = item.refs.get() == 0;
        // One damaged directory does not take all others from a list.
        let path = engine.subvolume_path(info.id).ok();
        let path = path.filter(|_| !is_deleted && (info.place.is_some() || is_top(info.id)));
        let some = |uuid: Uuid| Some(uuid).filter(|uuid| !uuid.is_nil());
        let time = |time: Timespec| SystemTime::from(FileTime::from(time));
        let if_set = |at: Timespec| (at.sec.get() != 0).then(|| time(at));
        SubvolumeInfo {
            id: info.id.0,
            path: path.map(|path| PathBuf::from(OsString::from_vec(path))),
            parent_id: info.place.as_ref().map(|place| place.dir.root.0),
            uuid: item.uuid,
            parent_uuid: some(item.parent_uuid),
            received_uuid: some(item.received_uuid),
            is_snapshot: info.snapshot_transid.is_some(),
            is_read_only: item.flags().contains(RootItemFlags::RDONLY),
            is_deleted,
            generation: item.generation.get(),
            created_generation: match (item.otransid.get(), info.snapshot_transid) {
                // Volumes of old kernels know it of snapshots only.
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

//! The subvolume at the root of a mount: `subvol=`, `subvolid=`, or the volume's default.

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, FileId, Volume};

use super::error::MountError;

/// Returns the root directory of the subvolume that the options name. A path begins at the top of the volume,
/// regardless of the default subvolume. If both are given, they must name the same subvolume.
pub(super) fn root_directory(
    volume: &Volume,
    path: Option<&[u8]>,
    id: Option<RootId>,
) -> Result<FileId, MountError> {
    let Some(path) = path else {
        let id = match id {
            Some(id) => id,
            None => volume.default_subvolume()?,
        };
        return match volume.root_dir(id) {
            Err(Error::NoSuchSubvolume(_)) => Err(MountError::NoSubvolumeId(id)),
            outcome => Ok(outcome?),
        };
    };
    let shown = || String::from_utf8_lossy(path).into_owned();
    let top = volume.root_dir(RootId::FS_TREE)?;
    let found = match volume.resolve(top, path) {
        Err(Error::NotFound | Error::NotADirectory(_)) => {
            return Err(MountError::NoSubvolume(shown()));
        }
        outcome => outcome?,
    };
    if found.is_empty_subvolume_dir() || volume.root_dir(found.root)? != found {
        return Err(MountError::NotASubvolume(shown()));
    }
    match id {
        Some(wanted) if wanted != found.root => Err(MountError::SubvolumeMismatch {
            path: shown(),
            found: found.root,
            wanted,
        }),
        _ => Ok(found),
    }
}

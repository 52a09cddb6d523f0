//! The search for a volume's other devices next to the named ones.

use std::path::{Path, PathBuf};

use ubtrfs_assemble::other_disks;
use ubtrfs_device::{Access, siblings};

use crate::error::{Cause, Naming, Result};

/// Finds the other devices of a volume: images in the same folder as a named image, and block devices if a block device
/// is named. [`Builder::scan`](crate::Builder::scan) accepts them.
///
/// These are also further disks if a named one is a member of an md array or an LVM physical volume.
///
/// A device of another generation is accepted if no other device has the same id. A copy of an earlier time is never
/// combined with newer devices for writing.
///
/// ```
/// use ubtrfs::{DeviceAccess, Volume, sibling_devices};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
/// Volume::builder().create(&paths, 1 << 30)?.close()?;
/// let siblings = sibling_devices(&paths[..1], DeviceAccess::Read)?;
/// assert_eq!(siblings, paths[1..]);
/// let volume = Volume::builder().read_only(true).scan(siblings).open(&paths[..1])?;
/// assert_eq!(volume.devices().len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Two devices have the same id within the volume, and cannot be distinguished (`InvalidData`).
pub fn sibling_devices<P: AsRef<Path>>(named: &[P], access: Access) -> Result<Vec<PathBuf>> {
    let named: Vec<PathBuf> = named.iter().map(|path| path.as_ref().to_owned()).collect();
    let shown = named.first().map_or(Path::new(""), PathBuf::as_path);
    let layered = other_disks(&named);
    match siblings(&named, access) {
        Ok(found) => Ok([found, layered].concat()),
        // Members of a mirror have the same superblock of btrfs.
        Err(_) if !layered.is_empty() => Ok(layered),
        Err(error) => Err(Cause::from(error)).naming("find further devices of", shown),
    }
}

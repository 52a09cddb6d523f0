//! The devices of a volume that lie beside those that are named.

use std::path::{Path, PathBuf};

use ubtrfs_device::{Access, siblings};

use crate::error::{Cause, Naming, Result};

/// Finds the other devices of the volume of the named ones: images in the same folder, and block devices beside block
/// devices. [`Builder::scan`](crate::Builder::scan) takes them.
///
/// A device of another generation is taken if no other device claims to be it. A copy of an earlier time is not put
/// together with newer devices for writing.
///
/// ```
/// use ubtrfs::{DeviceAccess, Volume, devices_beside};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
/// Volume::builder().create_all(&paths, 1 << 30)?.close()?;
/// let beside = devices_beside(&paths[..1], DeviceAccess::Read)?;
/// assert_eq!(beside, paths[1..]);
/// let volume = Volume::builder().read_only().scan(beside).open(&paths[0])?;
/// assert_eq!(volume.devices().len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Two devices claim one number within the volume, and nothing tells which is meant (`InvalidData`).
pub fn devices_beside<P: AsRef<Path>>(named: &[P], access: Access) -> Result<Vec<PathBuf>> {
    let named: Vec<PathBuf> = named.iter().map(|path| path.as_ref().to_owned()).collect();
    let shown = named.first().map_or(Path::new(""), PathBuf::as_path);
    let found = siblings(&named, access).map_err(Cause::from);
    found.naming("find the devices beside", shown)
}

//! Mounting a block device as one (`fuseblk`): the kernel claims the device itself, tells the file system of
//! syncfs(2), and waits at umount(2) until the last commit is done. For root only.
//!
//! The claim that the volume has on the device must go for the kernel's; the lock that keeps other processes
//! of ours away stays throughout.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::geteuid;
use ubtrfs_engine::Volume;

use super::attach::{Attachment, attach, attach_block};
use super::error::MountError;
use super::options::{BlockMount, Options};

/// Mounts as a block device where that is wanted and works, and otherwise as anything else.
pub(super) fn attach_volume(
    volume: &Arc<Volume>,
    wanted: &Attachment<'_>,
    options: &Options,
) -> Result<OwnedFd, MountError> {
    if options.block_mount == BlockMount::Never {
        return attach(wanted);
    }
    let must = options.block_mount == BlockMount::Always;
    let pool = volume.pool();
    let devices = pool.devices();
    let named = devices
        .iter()
        .find(|device| device.path.as_deref() == Some(wanted.source))
        .and_then(|device| pool.device(device.devid));
    let file = named.as_ref().and_then(|device| device.as_file());
    let Some(file) = file.filter(|file| file.is_block() && geteuid().is_root()) else {
        return match must {
            true => Err(MountError::NotABlockMount(wanted.source.into())),
            false => attach(wanted),
        };
    };
    file.release_claim();
    let sectorsize = volume.superblock().sectorsize.get();
    let refused = match attach_block(wanted, sectorsize) {
        Ok(device) => return Ok(device),
        Err(error) => error,
    };
    if volume.is_writable() {
        file.renew_claim()
            .map_err(|error| MountError::Volume(error.into()))?;
    }
    if must {
        return Err(refused);
    }
    tracing::debug!(%refused, "not mounted as a block device");
    attach(wanted)
}

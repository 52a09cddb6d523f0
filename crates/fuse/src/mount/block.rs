//! Mounting as a block device (`fuseblk`). The kernel claims the device itself, forwards syncfs(2), and umount(2) waits
//! until the last commit is done. For root only.
//!
//! The volume's claim on the device must be released for the kernel's claim. The lock against other ubtrfs processes is
//! held throughout. A renewed claim does not show whether others wrote in between, but the superblock does.
//!
//! An image is mounted through a loop device, which only gives the kernel a device name. The volume keeps using the
//! image, so that nothing is cached twice. Pages that were read through the loop device may be stale. The kernel drops
//! them when the volume is closed, and the loop device goes away with the mount.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use ubtrfs_device::{Access, BlockDevice, DeviceClaim, LoopDevice, clock};
use ubtrfs_fs::{Error, Volume};

use super::attach::{Attachment, attach, attach_block};
use super::error::MountError;
use super::holders::{holders_of, keeps_dead};
use super::options::{BlockMount, Options};
use crate::adapter::ShownBy;
use crate::mount_table::{BLOCK_FS_TYPE, mount_table};

/// The maximum time until the kernel releases a device after it has ended the connection.
const LETS_GO_WITHIN: Duration = Duration::from_secs(1);
const TRY_EVERY: Duration = Duration::from_millis(1);

/// Mounts as a block device if that is wanted and possible, and otherwise as a plain FUSE mount.
pub(super) fn attach_volume(
    volume: &Arc<Volume>,
    wanted: &Attachment<'_>,
    options: &Options,
    shown_by: &ShownBy,
) -> Result<OwnedFd, MountError> {
    let named = device_at(volume, wanted.source);
    let claim = named.as_ref().and_then(|device| device.claim());
    let file = named.as_ref().and_then(|device| device.file());
    let must = options.block_mount == BlockMount::Always;
    match (claim, file) {
        (Some(claim), _) if geteuid().is_root() && options.block_mount != BlockMount::Never => {
            attach_device(volume, claim, wanted, must)
        }
        _ if must => Err(MountError::NotABlockMount(wanted.source.into())),
        (None, Some(image)) if options.loop_mount == Some(true) => {
            attach_image(volume, image, wanted, shown_by)
        }
        _ => attach(wanted),
    }
}

fn attach_device(
    volume: &Volume,
    claim: &DeviceClaim,
    wanted: &Attachment<'_>,
    must: bool,
) -> Result<OwnedFd, MountError> {
    claim.release();
    let sectorsize = volume.superblock().sectorsize.get();
    let refused = match attach_block(wanted, sectorsize) {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    if volume.is_writable() {
        let renewed = claim.renew();
        renewed
            .and_then(|()| volume.pool().check_unchanged())
            .map_err(|error| MountError::Volume(error.into()))?;
    }
    if must {
        return Err(refused);
    }
    tracing::debug!(%refused, "not mounted as a block device");
    attach(wanted)
}

fn attach_image(
    volume: &Volume,
    image: &File,
    wanted: &Attachment<'_>,
    shown_by: &ShownBy,
) -> Result<OwnedFd, MountError> {
    let access = if volume.is_writable() {
        Access::Write
    } else {
        Access::Read
    };
    let device = LoopDevice::attach(image, access).map_err(|error| MountError::NoLoop {
        image: wanted.source.into(),
        error,
    })?;
    let as_device = Attachment {
        source: device.path(),
        ..wanted.clone()
    };
    let connection = attach_block(&as_device, volume.superblock().sectorsize.get())?;
    *shown_by.lock() = Some(device.path().into());
    Ok(connection)
}

fn device_at(volume: &Volume, path: &Path) -> Option<Arc<dyn BlockDevice>> {
    let pool = volume.pool();
    let devices = pool.devices();
    let mut devices = devices.iter();
    let named = devices.find(|device| device.path.as_deref() == Some(path))?;
    pool.device(named.devid)
}

/// The device of a mount, to be claimed again if the connection ends before the kernel's request to close the volume.
/// After `umount -f`, for example, the kernel releases the device at once. Then any program may take it while the last
/// commit is written.
#[derive(Debug)]
pub(super) struct Reclaim {
    file: Arc<dyn BlockDevice>,
    /// The device number of the mount, as in `st_dev`.
    device: (u32, u32),
}

impl Reclaim {
    /// Creates the future claim. Returns `None` if the volume is not mounted as a block device.
    pub(super) fn of(volume: &Volume, source: &Path, device: Option<(u32, u32)>) -> Option<Self> {
        let device = device.filter(|&device| is_mounted(device))?;
        let file = device_at(volume, source)?;
        // An image that is mounted through a loop device is never claimed.
        file.claim()?;
        Some(Self { file, device })
    }

    /// Makes sure that no other program has the device, or had it in between.
    pub(super) fn claim(&self, volume: &Volume) -> Result<(), Error> {
        let Some(claim) = self.file.claim() else {
            return Ok(());
        };
        let until = clock::now() + LETS_GO_WITHIN;
        loop {
            match claim.renew() {
                Ok(()) => {
                    tracing::info!("claimed the device again");
                    return Ok(volume.pool().check_unchanged()?);
                }
                Err(_) if clock::now() < until => clock::sleep(TRY_EVERY),
                // The kernel still has it for our mount.
                Err(_) if is_kept(self.device) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns whether a block device is mounted by us.
fn is_mounted(device: (u32, u32)) -> bool {
    mount_table().is_ok_and(|table| {
        let mut mounts = table.iter();
        mounts.any(|entry| entry.device == device && entry.fs_type == BLOCK_FS_TYPE)
    })
}

/// Returns whether the kernel keeps the file system of a mount whose connection has ended. Then a namespace still has
/// the mount, or a process uses a file in it. This process has the device's lock, so it is no other mount of ours.
fn is_kept(device: (u32, u32)) -> bool {
    !holders_of(device).is_empty() || keeps_dead(device)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    use rustix::fs::OFlags;
    use ubtrfs_device::DeviceError;
    use ubtrfs_format::ids::RootId;
    use ubtrfs_fs::{NewInode, OpenOptions};
    use ubtrfs_sim::kernel::{self, KernelVolume, LoopDevice, MkfsSpec};

    use super::super::closing::Closing;
    use super::super::service::MountService;
    use super::*;
    use crate::adapter::CloseFailure;

    /// The device number of no mount.
    const GONE: (u32, u32) = (0, 0xf_ffff);

    #[test]
    fn nothing_is_written_to_a_device_that_somebody_had_meanwhile() {
        if !kernel::or_skip("nothing_is_written_to_a_device_that_somebody_had_meanwhile") {
            return;
        }
        let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let device = LoopDevice::attach(&made.devices()[0]).unwrap();
        let volume = opened_to_write(device.path());
        let file = device_at(&volume, device.path()).unwrap();
        file.claim().unwrap().release();
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let new = NewInode::file(0o644);
        volume.create(top, b"lost", &new).unwrap();
        let stranger = File::options().write(true).open(device.path()).unwrap();
        stranger.write_all_at(&[0; 4096], 64 << 10).unwrap();
        stranger.write_all_at(b"XFSB", 0).unwrap();
        stranger.sync_all().unwrap();
        drop(stranger);
        let before = std::fs::read(device.path()).unwrap();

        let reclaim = Reclaim { file, device: GONE };
        let mut closing = Closing::new(volume, CloseFailure::default(), Some(reclaim));
        assert!(closing.end().is_err());
        drop(closing);
        assert!(std::fs::read(device.path()).unwrap() == before);
    }

    /// Retries while the device is taken. A process that another test starts has a copy of a claim until it executes
    /// its program.
    fn when_free<T, E>(mut open: impl FnMut() -> Result<T, E>, is_taken: impl Fn(&E) -> bool) -> T
    where
        E: std::fmt::Debug,
    {
        let until = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            match open() {
                Err(error) if is_taken(&error) && std::time::Instant::now() < until => {
                    clock::sleep(TRY_EVERY);
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn claimed_by_a_stranger(device: &Path) -> File {
        let mut exclusive = File::options();
        exclusive.read(true);
        exclusive.custom_flags(OFlags::EXCL.bits().cast_signed());
        when_free(
            || exclusive.open(device),
            |error| error.kind() == io::ErrorKind::ResourceBusy,
        )
    }

    fn opened_to_write(device: &Path) -> Arc<Volume> {
        let options = OpenOptions::default().writable(true);
        when_free(
            || Volume::open(&[device], &options),
            |error| matches!(error, Error::Device(DeviceError::InUse { .. })),
        )
    }

    #[test]
    fn nothing_is_written_to_a_device_that_somebody_else_has_taken() {
        if !kernel::or_skip("nothing_is_written_to_a_device_that_somebody_else_has_taken") {
            return;
        }
        let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let device = LoopDevice::attach(&made.devices()[0]).unwrap();
        for is_taken in [false, true] {
            let volume = opened_to_write(device.path());
            let before = volume.superblock().generation.get();
            let file = device_at(&volume, device.path()).unwrap();
            file.claim().unwrap().release();
            let stranger = is_taken.then(|| claimed_by_a_stranger(device.path()));
            let top = volume.root_dir(RootId::FS_TREE).unwrap();
            let new = NewInode::file(0o644);
            let name = if is_taken { &b"lost"[..] } else { b"new" };
            volume.create(top, name, &new).unwrap();

            let reclaim = Reclaim { file, device: GONE };
            let mut closing = Closing::new(volume, CloseFailure::default(), Some(reclaim));
            assert_eq!(closing.end().is_err(), is_taken);
            drop((closing, stranger));
            let left = Volume::open(&[device.path()], &OpenOptions::default()).unwrap();
            assert_eq!(left.superblock().generation.get() == before, is_taken);
            assert_eq!(left.lookup(top, name).unwrap().is_some(), !is_taken);
        }
    }
}

//! Ioctls that change the devices of a mount.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use ubtrfs_fuse::ioctl_args::{self as args, VolArgs, VolArgsV2};
use zerocopy::FromZeros;

use super::Asked;

/// Returns the text of btrfs-progs for a result code of an ioctl.
fn refusal(code: i32) -> &'static str {
    match code {
        1 => "unable to go below two devices on raid1",
        2 => "unable to go below four/two devices on raid10",
        3 => "unable to go below two devices on raid5",
        4 => "unable to go below three devices on raid6",
        5 => "unable to remove the dev_replace target dev",
        6 => "no missing devices found to remove",
        7 => "unable to remove the only writeable device",
        8 => "add/delete/balance/replace/resize operation in progress",
        9 => "unable to go below three devices on raid1c3",
        10 => "unable to go below four devices on raid1c4",
        _ => "unknown error",
    }
}

/// An ioctl whose result can be a code of btrfs.
struct Coded<'a, T>(Opcode, &'a mut T);

// SAFETY: the argument is as large as the number encodes, and any bytes are valid for it.
#[allow(unsafe_code)]
unsafe impl<T> Ioctl for Coded<'_, T> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.1).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(out)
    }
}

impl Asked {
    /// Adds a block device to the volume.
    pub(crate) fn add_device(&self, path: &Path) -> anyhow::Result<()> {
        self.change(args::ADD_DEV, &mut named(path.as_os_str().as_bytes())?)
    }

    /// Removes a device by its path, or "missing".
    pub(crate) fn remove_device(&self, path: &Path) -> anyhow::Result<()> {
        self.change(args::RM_DEV, &mut named(path.as_os_str().as_bytes())?)
    }

    pub(crate) fn remove_device_by_id(&self, devid: u64) -> anyhow::Result<()> {
        let mut args = VolArgsV2::new_zeroed();
        args.flags.set(args::DEVICE_BY_ID);
        args.name[..size_of::<u64>()].copy_from_slice(&devid.to_ne_bytes());
        self.change(args::RM_DEV_V2, &mut args)
    }

    /// Resizes a device: "1:max", "2:-1g".
    pub(crate) fn resize(&self, amount: &str) -> anyhow::Result<()> {
        self.change(args::RESIZE, &mut named(amount.as_bytes())?)
    }

    fn change<T>(&self, number: Opcode, argument: &mut T) -> anyhow::Result<()> {
        // SAFETY: see `Coded`.
        #[allow(unsafe_code)]
        let done = unsafe { ioctl(self.as_fd(), Coded(number, argument)) };
        match done {
            Ok(0) => Ok(()),
            Ok(code) => anyhow::bail!(refusal(code)),
            Err(Errno::FBIG) => anyhow::bail!("no enough free space"),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn named(name: &[u8]) -> Result<VolArgs, Errno> {
    let mut args = VolArgs::new_zeroed();
    // The last byte is the terminator.
    let room = args.name.len() - 1;
    let field = args.name[..room].get_mut(..name.len());
    field.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    Ok(args)
}

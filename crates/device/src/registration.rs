//! The kernel's registry of btrfs devices, which allows mounting a volume of several devices by any of them.
//!
//! udev, if it is running, registers a device shortly after a writer closes it.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

const CONTROL: &str = "/dev/btrfs-control";

/// The argument of most btrfs ioctls.
#[repr(C)]
struct VolArgs {
    fd: i64,
    /// NUL-terminated.
    name: [u8; 4088],
}
const _: () = assert!(size_of::<VolArgs>() == 4096);

const SCAN_DEV: Opcode = opcode::write::<VolArgs>(0x94, 4);
const FORGET_DEV: Opcode = opcode::write::<VolArgs>(0x94, 5);
const DEVICES_READY: Opcode = opcode::read::<VolArgs>(0x94, 39);

/// The registry of the kernel's btrfs.
#[derive(Debug)]
pub struct KernelRegister {
    control: File,
}

impl KernelRegister {
    /// Opens the registry. Returns None if the kernel has no btrfs.
    ///
    /// # Errors
    ///
    /// The caller has no permission.
    pub fn open() -> io::Result<Option<KernelRegister>> {
        match OpenOptions::new().read(true).write(true).open(CONTROL) {
            Ok(control) => Ok(Some(KernelRegister { control })),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Registers the device at `path`: the kernel reads its superblock.
    pub fn add(&self, path: &Path) -> io::Result<()> {
        let args = VolArgs::of(path)?;
        // SAFETY: BTRFS_IOC_SCAN_DEV reads a btrfs_ioctl_vol_args and writes nothing. VolArgs has the same layout.
        unsafe { ioctl(&self.control, Setter::<SCAN_DEV, VolArgs>::new(args)) }?;
        Ok(())
    }

    /// Unregisters the device at `path`, or all devices that are not mounted. An unknown device is not an error.
    pub fn forget(&self, path: Option<&Path>) -> io::Result<()> {
        let args = path.map_or(Ok(VolArgs::all()), VolArgs::of)?;
        // SAFETY: BTRFS_IOC_FORGET_DEV reads a btrfs_ioctl_vol_args and writes nothing. VolArgs has the same layout.
        match unsafe { ioctl(&self.control, Setter::<FORGET_DEV, VolArgs>::new(args)) } {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Registers the device at `path`. Returns whether all devices of its volume are registered.
    pub fn is_ready(&self, path: &Path) -> io::Result<bool> {
        let mut args = VolArgs::of(path)?;
        // SAFETY: `DevicesReady` is implemented for the btrfs control device.
        let missing = unsafe { ioctl(&self.control, DevicesReady(&mut args)) }?;
        Ok(missing == 0)
    }
}

/// Registers the device at `path`: the kernel reads its superblock.
///
/// # Errors
///
/// The kernel has no btrfs, or finds no volume on the device.
pub fn register_with_kernel(path: &Path) -> io::Result<()> {
    let register = KernelRegister::open()?.ok_or(io::ErrorKind::NotFound)?;
    register.add(path)
}

/// Returns whether the control device is missing or has no driver.
fn is_absent(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    use rustix::io::Errno;
    matches!(errno, Some(Errno::NOENT | Errno::NODEV | Errno::NXIO))
}

impl VolArgs {
    fn of(path: &Path) -> io::Result<VolArgs> {
        let mut args = VolArgs::all();
        let path = path.canonicalize()?;
        let path = path.as_os_str().as_bytes();
        if path.len() >= args.name.len() {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        args.name[..path.len()].copy_from_slice(path);
        Ok(args)
    }

    /// Returns the argument for all devices: an empty path.
    fn all() -> VolArgs {
        VolArgs {
            fd: 0,
            name: [0; 4088],
        }
    }
}

/// The query whether all devices of a volume are registered.
struct DevicesReady<'a>(&'a mut VolArgs);

// SAFETY: BTRFS_IOC_DEVICES_READY reads a btrfs_ioctl_vol_args; VolArgs has the same layout. Its result is 0 or 1.
unsafe impl Ioctl for DevicesReady<'_> {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        DEVICES_READY
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(
        missing: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(missing)
    }
}

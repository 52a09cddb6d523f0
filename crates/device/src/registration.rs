//! Telling the kernel of a block device, so that it can mount a volume of several by any of them.
//!
//! udev does the same a moment after a writer closes a device, where it runs.

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::ioctl::{Setter, ioctl, opcode};

const CONTROL: &str = "/dev/btrfs-control";

/// The argument of most ioctls of btrfs.
#[repr(C)]
struct VolArgs {
    fd: i64,
    /// Ends with a NUL.
    name: [u8; 4088],
}
const _: () = assert!(size_of::<VolArgs>() == 4096);

const SCAN_DEV: rustix::ioctl::Opcode = opcode::write::<VolArgs>(0x94, 4);

/// Lets the kernel read the superblock of the device at `path` and remember it.
pub fn register_with_kernel(path: &Path) -> io::Result<()> {
    let mut args = VolArgs {
        fd: 0,
        name: [0; 4088],
    };
    let path = path.as_os_str().as_bytes();
    if path.len() >= args.name.len() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    args.name[..path.len()].copy_from_slice(path);
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    // SAFETY: the opcode is of BTRFS_IOC_SCAN_DEV, which reads a btrfs_ioctl_vol_args, of which VolArgs
    // has the layout, and writes nothing.
    unsafe { ioctl(&control, Setter::<SCAN_DEV, VolArgs>::new(args)) }?;
    Ok(())
}

//! The command to run, determined by the name of the program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvokedAs {
    Ubtrfs,
    Btrfs,
    Mkfs,
    Fsck,
    /// By mount(8).
    MountHelper,
    /// By umount(8).
    UmountHelper,
}

pub(crate) fn invoked_as(program: Option<&OsStr>) -> InvokedAs {
    match program
        .and_then(|program| Path::new(program).file_name())
        .map(OsStr::as_bytes)
    {
        Some(b"btrfs") => InvokedAs::Btrfs,
        Some(b"mkfs.btrfs") => InvokedAs::Mkfs,
        Some(b"fsck.btrfs") => InvokedAs::Fsck,
        Some(b"mount.ubtrfs" | b"mount.fuse.ubtrfs" | b"mount.fuseblk.ubtrfs") => {
            InvokedAs::MountHelper
        }
        Some(b"umount.ubtrfs" | b"umount.fuse.ubtrfs" | b"umount.fuseblk.ubtrfs") => {
            InvokedAs::UmountHelper
        }
        _ => InvokedAs::Ubtrfs,
    }
}

/// The exit code of fsck(8) for an operational error, here a missing device.
const FSCK_OPERATIONAL_ERROR: u8 = 8;

/// Runs `fsck.btrfs`, which does nothing, as in btrfs-progs. A boot script calls it, but btrfs needs no check
/// before it is mounted. It prints a note, unless it is run automatically (-a, -A, -p, -y).
pub(crate) fn fsck(args: &[OsString]) -> ExitCode {
    let automatic = args
        .iter()
        .map(|arg| arg.as_bytes())
        .take_while(|arg| arg.first() == Some(&b'-') && *arg != b"--")
        .any(|arg| arg.iter().any(|letter| b"aApy".contains(letter)));
    let device = args.last().map_or(OsStr::new(""), OsString::as_os_str);
    if !Path::new(device).exists() {
        eprintln!("fsck.btrfs: {} does not exist", device.display());
        return ExitCode::from(FSCK_OPERATIONAL_ERROR);
    }
    if !automatic {
        let advice = "If you wish to check the consistency of a BTRFS filesystem or\n\
                      repair a damaged filesystem, see btrfs(8) subcommand 'check'.\n";
        // A closed output is not an error.
        let _ = io::stdout().write_all(advice.as_bytes());
    }
    ExitCode::SUCCESS
}

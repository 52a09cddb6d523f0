//! Commands on a path in a mount by the ioctls of btrfs, with the rights that the caller has there.
//!
//! For a mount whose server takes no command of the caller (`control`), and for mounts of the kernel's btrfs: both
//! answer the same. A caller that may not search trees sees what can be reached from where the volume is mounted
//! (`subvolumes`).
//!
//! The argument of an ioctl is declared once, where they are answered (`ubtrfs_fuse::ioctl_args`). Not here: which
//! commands are done so (`ByIoctls`, in their files), and when (`control::client`).

mod data;
mod devices;
mod extents;
mod kernel_target;
mod names;
mod search;
mod send;
mod subvolume;
mod subvolumes;
mod volume;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) use self::devices::FoundChunk;
pub(crate) use self::kernel_target::KernelTarget;
pub(crate) use self::names::joined;
pub(crate) use self::subvolume::{Inherited, text};
pub(crate) use self::subvolumes::{Subvolumes, info_of};
use crate::presentation::console::Console;
use crate::volume_access::location::Location;

/// A command that can be run by ioctls.
pub(crate) trait ByIoctls {
    /// Runs the command by ioctls. Its locations are paths in mounts.
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()>;
}

/// Returns whether something failed because the server of the mount does not know the ioctl.
pub(crate) fn is_unknown(error: &anyhow::Error) -> bool {
    let errno = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Errno>());
    errno == Some(&Errno::NOTTY)
}

/// A pipe or a device would have one wait.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The type of a file system as statfs(2) gives it.
const BTRFS_SUPER_MAGIC: u32 = 0x9123_683e;

/// A file or directory that ioctls are asked of.
#[derive(Debug)]
pub(crate) struct Asked(File);

impl Asked {
    pub(crate) fn open(location: &Location) -> anyhow::Result<Asked> {
        let opened = Asked::at(location.written_path());
        opened.with_context(|| format!("cannot access '{location}'"))
    }

    pub(crate) fn at(path: &Path) -> Result<Asked, Errno> {
        Ok(Asked(open(path, FLAGS, Mode::empty())?.into()))
    }

    /// Returns whether the kernel's btrfs answers, and no server of ours.
    pub(crate) fn is_kernels(&self) -> Result<bool, Errno> {
        Ok(rustix::fs::fstatfs(&self.0)?.f_type as u32 == BTRFS_SUPER_MAGIC)
    }

    /// Opens a file below a directory, by a path from the server of the mount, which might lead elsewhere.
    pub(crate) fn below(&self, path: &[u8]) -> Result<Asked, Errno> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(Asked(
            openat2(&self.0, path, FLAGS, Mode::empty(), within)?.into(),
        ))
    }

    /// Has the answer in the place of the argument. Of SPACE_INFO the argument holds the list that its head describes.
    fn ask<const NUMBER: Opcode, T: FromBytes + IntoBytes>(
        &self,
        argument: &mut T,
    ) -> Result<(), Errno> {
        ask_of::<NUMBER, T>(self.as_fd(), argument)
    }
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn ask_of<const NUMBER: Opcode, T: FromBytes + IntoBytes>(
    file: BorrowedFd<'_>,
    argument: &mut T,
) -> Result<(), Errno> {
    const { assert!(size_of::<T>() >= (NUMBER >> 16 & 0x3fff) as usize) };
    // SAFETY: the answer has as many bytes as the number says, and the list that was asked for. The argument has room
    // for both, and any bytes are a `T`.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<NUMBER, T>::new(argument))
    }
}

//! Commands on a path in a mount through the ioctls of btrfs, with the rights of the caller.
//!
//! Used for mounts whose server does not accept the caller's commands (`control`), and for mounts of the
//! kernel's btrfs. Both support the same ioctls. A caller that may not search trees sees everything reachable
//! from the mount point (`subvolumes`).
//!
//! The arguments of ioctls are declared where they are handled (`ubtrfs_fuse::ioctl_args`). Not here: the
//! commands themselves (`ByIoctls`, in their files), and the decision to use ioctls (`control::client`).

mod data;
mod device_changes;
mod devices;
mod extents;
mod kernel_target;
mod names;
mod replacement;
mod scrub;
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
pub(crate) use self::replacement::ReplaceState;
pub(crate) use self::subvolume::{Inherited, text};
pub(crate) use self::subvolumes::{Subvolumes, info_of};
use crate::presentation::console::Console;
use crate::volume_access::location::Location;

/// A command that can run through ioctls.
pub(crate) trait ByIoctls {
    /// Runs the command through ioctls. Its locations are paths in mounts.
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()>;
}

/// Returns whether the server of the mount does not support the ioctl.
pub(crate) fn is_unknown(error: &anyhow::Error) -> bool {
    let errno = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Errno>());
    errno == Some(&Errno::NOTTY)
}

/// Nonblocking, because opening a pipe or a device could block.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The file system type in statfs(2).
const BTRFS_SUPER_MAGIC: u32 = 0x9123_683e;

/// An open file or directory for ioctls.
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

    /// Returns whether it is on the kernel's btrfs, and not on a mount of ours.
    pub(crate) fn is_kernels(&self) -> Result<bool, Errno> {
        Ok(rustix::fs::fstatfs(&self.0)?.f_type as u32 == BTRFS_SUPER_MAGIC)
    }

    /// Opens a file below a directory. The path is from the mount's server, so it must not lead elsewhere.
    pub(crate) fn below(&self, path: &[u8]) -> Result<Asked, Errno> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(Asked(
            openat2(&self.0, path, FLAGS, Mode::empty(), within)?.into(),
        ))
    }

    /// Runs an ioctl that replaces its argument by the answer. For SPACE_INFO the argument includes the list
    /// that its head describes.
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

#[cfg(test)]
thread_local! {
    static CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how many ioctls `work` makes in this thread.
#[cfg(test)]
pub(crate) fn calls_of(work: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

fn ask_of<const NUMBER: Opcode, T: FromBytes + IntoBytes>(
    file: BorrowedFd<'_>,
    argument: &mut T,
) -> Result<(), Errno> {
    const { assert!(size_of::<T>() >= (NUMBER >> 16 & 0x3fff) as usize) };
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the kernel writes as many bytes as the number encodes, plus the requested list. The argument
    // has room for both, and any bytes are a valid `T`.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<NUMBER, T>::new(argument))
    }
}

//! The disk usage of files in a mount, from the extents that the kernel reports.
//!
//! Subvolumes have separate device numbers, just like other file systems. The fsid distinguishes them.

use std::collections::HashSet;
use std::fs::{self, Metadata, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use ubtrfs_format::ids::InodeNr;
use ubtrfs_fs::inspect::SharedRanges;
use ubtrfs_fuse::ioctl_args as args;

use super::{Usage, complain, is_denied, pass_over};
use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::ioctls::Asked;

/// Called for each path with its usage, and for the argument also with the bytes shared within it.
pub(super) type Show<'a> =
    dyn FnMut(&mut Console, &[u8], Usage, Option<u64>) -> anyhow::Result<()> + 'a;

/// The measurement of one argument.
#[derive(Debug, Default)]
pub(super) struct Meter {
    ranges: SharedRanges,
    /// Directories and hard-linked files that were counted. A bind mount shows a directory twice.
    seen: HashSet<(u64, u64)>,
    /// The fsid of the argument's volume, unless the argument is an empty subvolume directory.
    volume: Option<[u8; 16]>,
    /// Open directories, from the argument down.
    open: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The device number of the file system.
    device: u64,
    entries: ReadDir,
    usage: Usage,
}

impl Meter {
    /// Measures a path and the files below it.
    ///
    /// # Errors
    ///
    /// The argument cannot be measured, or the mount reports no extents.
    pub(super) fn measure(
        &mut self,
        path: &Path,
        show: &mut Show<'_>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let not_measured = || {
            let shown = Escaped::of(path);
            format!("cannot check space of '{shown}'")
        };
        let metadata = fs::metadata(path).with_context(not_measured)?;
        if !is_btrfs(path) {
            // FUSE reports no extents.
            return Err(Errno::NOTTY.into());
        }
        if metadata.is_file() {
            let usage = self.file(path).with_context(not_measured)?;
            return show(
                console,
                path.as_os_str().as_bytes(),
                usage,
                Some(usage.shared()),
            );
        }
        if !metadata.is_dir() {
            return Ok(());
        }
        self.volume = volume_of(path).with_context(not_measured)?;
        self.seen.insert((metadata.dev(), metadata.ino()));
        self.enter(path.to_owned(), &metadata)
            .with_context(not_measured)?;
        while let Some(directory) = self.open.last_mut() {
            let Some(entry) = directory.entries.next() else {
                self.leave(show, console)?;
                continue;
            };
            let outcome = match entry {
                Ok(entry) => self.entry(&entry.path(), show, console),
                Err(error) => Err((directory.path.clone(), error.into())),
            };
            match outcome {
                Ok(()) => {}
                Err((_, error)) if is_final(&error) => return Err(error),
                Err((path, error)) if is_unreadable(&error) => {
                    pass_over(console, path.as_os_str().as_bytes(), error);
                }
                Err((path, error)) => complain(console, path.as_os_str().as_bytes(), error),
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: PathBuf, metadata: &Metadata) -> std::io::Result<()> {
        let entries = fs::read_dir(&path)?;
        self.open.push(Directory {
            path,
            device: metadata.dev(),
            entries,
            usage: Usage::default(),
        });
        Ok(())
    }

    fn leave(&mut self, show: &mut Show<'_>, console: &mut Console) -> anyhow::Result<()> {
        let Some(left) = self.open.pop() else {
            return Ok(());
        };
        let shared_within = self.open.is_empty().then(|| self.ranges.bytes());
        self.count(left.usage);
        show(
            console,
            left.path.as_os_str().as_bytes(),
            left.usage,
            shared_within,
        )
    }

    fn count(&mut self, usage: Usage) {
        if let Some(directory) = self.open.last_mut() {
            directory.usage.add(usage);
        }
    }

    /// Enters a directory, or counts and prints a file. Returns an error with its path.
    fn entry(
        &mut self,
        path: &Path,
        show: &mut Show<'_>,
        console: &mut Console,
    ) -> Result<(), (PathBuf, anyhow::Error)> {
        let failed = |error: anyhow::Error| (path.to_owned(), error);
        let metadata = path
            .symlink_metadata()
            .map_err(|error| failed(error.into()))?;
        if metadata.is_dir() {
            let above = self.open.last().map(|directory| directory.device);
            if above != Some(metadata.dev()) && !self.is_of_volume(path) {
                return Ok(());
            }
            // All empty subvolume directories have the same inode number.
            let has_number = metadata.ino() != InodeNr::EMPTY_SUBVOL_DIR.0;
            if has_number && !self.seen.insert((metadata.dev(), metadata.ino())) {
                return Ok(());
            }
            let entered = self.enter(path.to_owned(), &metadata);
            return entered.map_err(|error| failed(error.into()));
        }
        let is_new = metadata.nlink() == 1 || self.seen.insert((metadata.dev(), metadata.ino()));
        if !metadata.is_file() || !is_new {
            return Ok(());
        }
        let usage = self.file(path).map_err(failed)?;
        self.count(usage);
        show(console, path.as_os_str().as_bytes(), usage, None)
            .map_err(|error| failed(anyhow!(Unshown(error))))
    }

    /// Returns whether a directory with another device number is a subvolume of the same volume.
    fn is_of_volume(&self, dir: &Path) -> bool {
        if !is_btrfs(dir) {
            return false;
        }
        match volume_of(dir) {
            Ok(Some(volume)) => Some(volume) == self.volume,
            // An empty subvolume directory, or one that cannot be opened: entering it returns the error.
            Ok(None) | Err(_) => true,
        }
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<Usage> {
        let asked = Asked::at(path)?;
        let mut usage = Usage::default();
        let outcome = asked.extents(&mut |extent| {
            let flags = extent.flags.get();
            if flags & (args::FIEMAP_UNKNOWN | args::FIEMAP_DELALLOC | args::FIEMAP_INLINE) != 0 {
                return;
            }
            let (start, len) = (extent.physical.get(), extent.length.get());
            usage.total = usage.total.saturating_add(len);
            if flags & args::FIEMAP_SHARED == 0 {
                usage.exclusive = usage.exclusive.saturating_add(len);
            } else {
                self.ranges.insert(start..start.saturating_add(len));
            }
        });
        match outcome {
            // From the VFS, for file systems that report no extents.
            Err(Errno::OPNOTSUPP) => Err(Errno::NOTTY.into()),
            outcome => Ok(outcome.map(|()| usage)?),
        }
    }
}

/// Writing to standard output failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Unshown(anyhow::Error);

/// Returns whether the error ends the measurement.
fn is_final(error: &anyhow::Error) -> bool {
    crate::volume_access::ioctls::is_unknown(error) || error.is::<Unshown>()
}

fn is_unreadable(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| is_denied(error.kind()))
}

/// Returns the fsid, or None for an empty subvolume directory, which supports no ioctls.
fn volume_of(path: &Path) -> Result<Option<[u8; 16]>, Errno> {
    match Asked::at(path)?.volume_info() {
        Ok(info) => Ok(Some(info.fsid)),
        Err(Errno::NOTTY) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_btrfs(dir: &Path) -> bool {
    const MAGIC: u32 = 0x9123_683e;
    rustix::fs::statfs(dir).is_ok_and(|found| found.f_type as u32 == MAGIC)
}

//! Finds the mount of an argument's path.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_fuse::mount::{TableEntry, mount_table};

use crate::volume_access::location::Location;

/// The kind of place that an argument names.
#[derive(Debug)]
pub(super) enum Found {
    Ours(Mounted),
    /// In a mount of the kernel's btrfs.
    Kernels(Kind),
    /// An image, or not ours.
    Elsewhere,
}

/// The kind of file at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Directory,
    /// Not an image.
    File,
    Nothing,
}

/// A path in a mount of ours.
#[derive(Clone, Debug)]
pub(super) struct Mounted {
    pub(super) device: (u32, u32),
    pub(super) owner: u32,
    pub(super) is_read_only: bool,
    pub(super) mountpoint: PathBuf,
    /// The existing part of the path.
    pub(super) place: PathBuf,
    /// Relative to the root of the file system.
    pub(super) path: Vec<u8>,
}

impl Found {
    pub(super) fn of(argument: &OsStr) -> io::Result<Found> {
        let location = Location::parse(argument);
        if !location.is_whole(argument) || location.image.path().is_err() {
            return Ok(Found::Elsewhere);
        }
        let Some((there, missing)) = resolve(Path::new(argument)) else {
            return Ok(Found::Elsewhere);
        };
        let Some(entry) = mount_of(&there)? else {
            return Ok(Found::Elsewhere);
        };
        let is_kernels = entry.fs_type == "btrfs";
        let kind = there.metadata()?.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        if !entry.is_ours() && !is_kernels || is_device || kind.is_file() && is_image(&there) {
            return Ok(Found::Elsewhere);
        }
        if is_kernels {
            return Ok(Found::Kernels(if !missing.as_os_str().is_empty() {
                Kind::Nothing
            } else if kind.is_dir() {
                Kind::Directory
            } else {
                Kind::File
            }));
        }
        let Ok(below) = there.strip_prefix(&entry.mountpoint) else {
            return Ok(Found::Elsewhere);
        };
        if climbs_above(&below.join(&missing)) {
            return Ok(Found::Elsewhere);
        }
        let path = entry.root.join(below).join(missing);
        let mut path = path.into_os_string().into_encoded_bytes();
        while path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        Ok(Found::Ours(Mounted {
            device: entry.device,
            owner: entry.owner().unwrap_or(0),
            is_read_only: entry.refuses_writes(),
            mountpoint: entry.mountpoint,
            place: there,
            path,
        }))
    }
}

/// Returns whether a path leads above its start. It contains no symbolic links, but perhaps new names.
fn climbs_above(path: &Path) -> bool {
    let mut depth = 0usize;
    for component in path.components() {
        let next = match component {
            Component::ParentDir => depth.checked_sub(1),
            Component::Normal(_) => depth.checked_add(1),
            _ => Some(depth),
        };
        match next {
            Some(next) => depth = next,
            None => return true,
        }
    }
    false
}

/// Returns the existing part of a path, without symbolic links, and the remaining names. These may include
/// ".." after a missing name, as `subvolume create -p` creates that name.
fn resolve(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut names: Vec<OsString> = Vec::new();
    let mut at = path;
    loop {
        let existing = if at.as_os_str().is_empty() {
            Path::new(".")
        } else {
            at
        };
        if let Ok(there) = existing.canonicalize() {
            return Some((there, names.iter().rev().collect()));
        }
        match at.components().next_back()? {
            name @ (Component::Normal(_) | Component::ParentDir) => {
                names.push(name.as_os_str().to_owned());
            }
            _ => return None,
        }
        at = at.parent()?;
    }
}

/// Returns the mount point of the file system that contains a path without symbolic links.
pub(crate) fn mountpoint_of(path: &Path) -> io::Result<PathBuf> {
    let entry = mount_of(path)?.ok_or(io::ErrorKind::NotFound)?;
    Ok(entry.mountpoint)
}

fn mount_of(path: &Path) -> io::Result<Option<TableEntry>> {
    let status = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?;
    let mut table = mount_table()?.into_iter();
    Ok(table.find(|entry| entry.id == status.stx_mnt_id))
}

/// Returns whether a file is a btrfs image. Any other file in a mount is meant itself.
fn is_image(path: &Path) -> bool {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    let Ok(file) = File::open(path) else {
        return false;
    };
    file.read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .is_ok()
        && Superblock::from_block(&block).is_some_and(|superblock| superblock.magic == MAGIC)
}

//! Owner, mode, extended attributes and times of copies.
//!
//! The order matters: changing the owner clears set-id bits and capabilities, an ACL refines the mode, and everything
//! changes times. A process without root rights preserves as much as it may, like cp(1): its own files and groups. It
//! never keeps a set-id bit for another owner than the original's.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, Gid, Mode, RawMode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_fs::{FileKind, FileTime};
use ubtrfs_stream::LeftOut;

use super::attributes::Attributes;
use super::options::CopyOptions;
use crate::escaped::Escaped;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Metadata that could not be set on a file of the host.
#[derive(Debug, thiserror::Error)]
#[error("cannot set {what}: {source}")]
pub(crate) struct MetadataError {
    what: String,
    source: io::Error,
}

impl MetadataError {
    fn new(what: impl fmt::Display, source: impl Into<io::Error>) -> MetadataError {
        MetadataError {
            what: what.to_string(),
            source: source.into(),
        }
    }

    /// Returns the errno of the system.
    pub(super) fn errno(&self) -> Errno {
        errno_of(&self.source)
    }
}

/// The open mode of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handle {
    /// For reading or writing.
    Open,
    /// A reference (`O_PATH`), which symbolic links and devices require.
    Reference,
}

/// The assumed umask if the actual one cannot be read: access for the owner only.
const UMASK_OF_THE_OWNER_ALONE: u32 = 0o077;

/// Sets the metadata of copies on the host.
#[derive(Debug)]
pub(super) struct MetadataSetter {
    options: CopyOptions,
    is_root: bool,
    /// The bits to clear in copies whose modes are not preserved.
    umask: u32,
    /// Attributes that the destination does not support.
    left_out: LeftOut,
    /// Whether it was reported that only root may set some attributes.
    reported_forbidden: bool,
}

impl MetadataSetter {
    /// Creates a setter. It does not change the umask of the process, since other threads create files with it: each
    /// mode is set explicitly after creation.
    pub(super) fn new(options: CopyOptions) -> MetadataSetter {
        MetadataSetter {
            options,
            left_out: LeftOut::default(),
            is_root: rustix::process::geteuid().is_root(),
            umask: if options.preserve { 0 } else { process_umask() },
            reported_forbidden: false,
        }
    }

    pub(super) fn apply(
        &mut self,
        fd: impl AsFd,
        handle: Handle,
        attributes: &Attributes,
    ) -> Vec<MetadataError> {
        let mut problems = Vec::new();
        let mut mode = attributes.file.mode & 0o7777;
        if self.options.preserve {
            mode &= !self.owner(&fd, attributes, &mut problems);
        } else {
            mode = mode & 0o777 & !self.umask;
        }
        if attributes.kind != FileKind::Symlink {
            self.mode(&fd, handle, mode, &mut problems);
        }
        if self.options.preserve {
            for (name, value) in &attributes.xattrs {
                self.xattr(&fd, attributes.kind, (name, value), &mut problems);
            }
            let times = Timestamps {
                last_access: timespec(attributes.file.times.access),
                last_modification: timespec(attributes.file.times.modification),
            };
            if let Err(errno) = rustix::fs::utimensat(&fd, "", &times, AtFlags::EMPTY_PATH) {
                problems.push(MetadataError::new("times", errno));
            }
        }
        problems
    }

    /// Returns the mode bits to clear because the owner could not be preserved.
    fn owner(
        &self,
        fd: impl AsFd,
        attributes: &Attributes,
        problems: &mut Vec<MetadataError>,
    ) -> u32 {
        let chown = |uid: Option<u32>, gid: u32| {
            let uid = uid.map(Uid::from_raw);
            let gid = Some(Gid::from_raw(gid));
            rustix::fs::chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH)
        };
        let Err(errno) = chown(Some(attributes.file.uid), attributes.file.gid) else {
            return 0;
        };
        if self.is_root || errno != Errno::PERM {
            problems.push(MetadataError::new("owner", errno));
            return SETUID | SETGID;
        }
        // The group may be one of the caller's own.
        match chown(None, attributes.file.gid) {
            Ok(()) => SETUID,
            Err(_) => SETUID | SETGID,
        }
    }

    fn mode(&self, fd: impl AsFd, handle: Handle, mode: u32, problems: &mut Vec<MetadataError>) {
        let mode = Mode::from_raw_mode(mode as RawMode);
        let set = match handle {
            Handle::Open => rustix::fs::fchmod(&fd, mode),
            Handle::Reference => {
                rustix::fs::chmodat(rustix::fs::CWD, through_proc(&fd), mode, AtFlags::empty())
            }
        };
        if let Err(errno) = set {
            problems.push(MetadataError::new("mode", errno));
        }
    }

    fn xattr(
        &mut self,
        fd: impl AsFd,
        kind: FileKind,
        (name, value): (&[u8], &[u8]),
        problems: &mut Vec<MetadataError>,
    ) {
        // The path in /proc also works for an `O_PATH` reference, and for a link itself.
        let set = rustix::fs::setxattr(through_proc(&fd), name, value, XattrFlags::empty());
        let Err(errno) = set else { return };
        // btrfs properties have no meaning on other file systems.
        if errno == Errno::NOTSUP && name.starts_with(b"btrfs.") {
            return;
        }
        if !self.options.strict_attributes && cannot_exist(errno, kind, name) {
            self.left_out.add(name);
            return;
        }
        if errno == Errno::PERM && !self.is_root {
            if !self.reported_forbidden {
                let name = Escaped(name);
                tracing::warn!("attributes such as {name} are left out: only root may set them");
            }
            self.reported_forbidden = true;
            return;
        }
        problems.push(MetadataError::new(
            format_args!("attribute {}", Escaped(name)),
            errno,
        ));
    }
}

impl Drop for MetadataSetter {
    fn drop(&mut self) {
        self.left_out.warn();
    }
}

/// Returns whether no file of this kind can have the attribute at the destination. Linux gives attributes of users to
/// files and directories only.
fn cannot_exist(errno: Errno, kind: FileKind, name: &[u8]) -> bool {
    let takes_users = matches!(kind, FileKind::Regular | FileKind::Directory);
    errno == Errno::NOTSUP || errno == Errno::PERM && !takes_users && name.starts_with(b"user.")
}

/// Returns the umask of the process. umask(2) would have to change it temporarily, so it is read from /proc.
fn process_umask() -> u32 {
    let shown = std::fs::read_to_string("/proc/self/status");
    let umask = shown.ok().and_then(|status| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    });
    umask.unwrap_or(UMASK_OF_THE_OWNER_ALONE)
}

/// Returns a path that resolves to the file of `fd`, even if that is a symbolic link.
fn through_proc(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn timespec(time: FileTime) -> Timespec {
    Timespec {
        tv_sec: time.sec,
        // Some larger numbers have special meanings for the system.
        tv_nsec: time.nsec.min(999_999_999).into(),
    }
}

//! The kernel's btrfs as a target: what it does proves the model.

use std::path::{Path, PathBuf};

use super::vfs_target::Mounted;
use super::{Op, OpError, SubvolumeVerb, VfsTarget};
use crate::error::At;
use crate::kernel::{KernelMount, KernelVolume, run};
use crate::{Error, Result};

/// A volume that is mounted by the kernel, but for moments.
#[derive(Debug)]
pub struct MountedVolume {
    volume: KernelVolume,
    options: String,
    mount: Option<KernelMount>,
}

pub type KernelTarget = VfsTarget<MountedVolume>;

impl KernelTarget {
    /// Mounts with `options`, as for `KernelVolume::mount`.
    pub fn mount(volume: KernelVolume, options: &str) -> Result<KernelTarget> {
        let mount = volume.mount(options)?;
        Ok(VfsTarget::new(MountedVolume {
            volume,
            options: options.to_owned(),
            mount: Some(mount),
        }))
    }

    /// Unmounts.
    pub fn into_volume(self) -> Result<KernelVolume> {
        let mut mounted = self.into_mounted();
        if let Some(mount) = mounted.mount.take() {
            mount.unmount()?;
        }
        Ok(mounted.volume)
    }
}

impl MountedVolume {
    fn mount(&self) -> &KernelMount {
        let mount = self.mount.as_ref();
        mount.expect("mounted, unless mounting again had failed")
    }
}

impl Mounted for MountedVolume {
    fn root(&self) -> &Path {
        self.mount().path()
    }

    fn sync(&mut self) -> Result<()> {
        self.mount().sync()
    }

    fn remount(&mut self) -> Result<()> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        self.mount = Some(self.volume.mount(&self.options)?);
        Ok(())
    }

    fn subvolume(&mut self, verb: SubvolumeVerb<'_>) -> Result<(), OpError> {
        btrfs_subvolume(verb)
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        is_by_chance(op, error)
    }
}

/// A kernel mount that another keeps, for one of several threads. It cannot be mounted again.
#[derive(Debug)]
pub struct KernelFolder(PathBuf);

impl KernelFolder {
    pub fn new(root: &Path) -> KernelFolder {
        KernelFolder(root.to_path_buf())
    }
}

impl Mounted for KernelFolder {
    fn root(&self) -> &Path {
        &self.0
    }

    fn sync(&mut self) -> Result<()> {
        let dir = std::fs::File::open(&self.0).at("open", &self.0)?;
        rustix::fs::syncfs(&dir).at("syncfs", &self.0)
    }

    fn remount(&mut self) -> Result<()> {
        Err(rustix::io::Errno::BUSY).at("mount again", &self.0)
    }

    fn subvolume(&mut self, verb: SubvolumeVerb<'_>) -> Result<(), OpError> {
        btrfs_subvolume(verb)
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        is_by_chance(op, error)
    }
}

/// Failures that depend on what a script does not say.
fn is_by_chance(op: &Op, error: OpError) -> bool {
    match op {
        // A larger value takes the old one's place only if their leaf happens to have room.
        Op::SetXattr { .. } => error == OpError::NoSpace,
        // The command asks for the whole path, which may be longer than the kernel tells.
        Op::CreateSubvolume { .. }
        | Op::Snapshot { .. }
        | Op::DeleteSubvolume { .. }
        | Op::SetReadOnly { .. } => error == OpError::NameTooLong,
        _ => false,
    }
}

fn btrfs_subvolume(verb: SubvolumeVerb<'_>) -> Result<(), OpError> {
    let done = match verb {
        SubvolumeVerb::Create { path } => {
            let words = ["subvolume", "create"].map(AsRef::as_ref);
            run("btrfs", words.into_iter().chain([path.as_os_str()]))
        }
        SubvolumeVerb::Snapshot {
            from,
            to,
            read_only,
        } => {
            let words: &[&str] = match read_only {
                true => &["subvolume", "snapshot", "-r"],
                false => &["subvolume", "snapshot"],
            };
            let words = words.iter().map(AsRef::as_ref);
            run("btrfs", words.chain([from.as_os_str(), to.as_os_str()]))
        }
        SubvolumeVerb::Delete { path } => {
            let words = ["subvolume", "delete"].map(AsRef::as_ref);
            run("btrfs", words.into_iter().chain([path.as_os_str()]))
        }
        SubvolumeVerb::SetReadOnly { path, read_only } => {
            let value = if read_only { "true" } else { "false" };
            let words = ["property", "set", "-ts"].map(AsRef::as_ref);
            let object = [path.as_os_str(), "ro".as_ref(), value.as_ref()];
            run("btrfs", words.into_iter().chain(object))
        }
    };
    done.map(drop).map_err(|error| errno_of(&error))
}

/// What the C library calls these errors, which the command repeats.
const MESSAGES: [(&str, OpError); 12] = [
    ("File exists", OpError::Exists),
    ("No such file or directory", OpError::NotFound),
    ("Directory not empty", OpError::NotEmpty),
    ("Not a directory", OpError::NotADirectory),
    ("Is a directory", OpError::IsADirectory),
    ("File name too long", OpError::NameTooLong),
    ("Read-only file system", OpError::ReadOnly),
    ("Operation not permitted", OpError::NotPermitted),
    ("Invalid argument", OpError::InvalidArgument),
    ("No space left on device", OpError::NoSpace),
    ("Disk quota exceeded", OpError::Quota),
    ("Device or resource busy", OpError::Busy),
];

fn errno_of(error: &Error) -> OpError {
    let text = error.to_string();
    let known = MESSAGES.iter().find(|(message, _)| text.contains(message));
    known.map_or_else(
        || {
            eprintln!("{text}");
            OpError::Io
        },
        |(_, error)| *error,
    )
}

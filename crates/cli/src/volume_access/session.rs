//! A volume that stays open between commands: the volume of a shell or of a mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use ubtrfs::{DeviceAccess, Subvolume, Volume};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, Volume as Engine};
use ubtrfs_fuse::caller::{Caller, Refused, Rights};
use ubtrfs_fuse::mount::{LiveOptions, is_read_only};
use ubtrfs_fuse::stats::Stats;
use ubtrfs_fuse::{Changes, KernelPages};

use crate::volume_access::reason::Reasoned;

#[derive(Debug)]
pub(crate) struct Session {
    /// The image or the mount point.
    place: PathBuf,
    volume: Volume,
    /// The files below the directory displayed as "/", by path.
    files: Subvolume,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Shell {
        /// The absolute start directory of relative paths.
        dir: Mutex<Vec<u8>>,
    },
    Mount(Box<MountSession>),
}

/// A mount, as far as commands on it need it.
#[derive(Clone, Debug)]
pub(crate) struct ServedMount {
    /// The directory displayed as "/", for checking the caller's rights.
    pub(crate) root: FileId,
    pub(crate) live: LiveOptions,
    pub(crate) stats: Option<Arc<Stats>>,
    /// Major and minor number of the mount's device.
    pub(crate) device: (u32, u32),
    /// The channel for invalidating the kernel's caches.
    pub(crate) changes: Option<Changes>,
    /// The kernel's dirty pages.
    pub(crate) pages: Option<KernelPages>,
}

/// The mount and the caller of a command that a server runs.
#[derive(Debug)]
pub(crate) struct MountSession {
    pub(crate) caller: Caller,
    pub(crate) served: ServedMount,
    pub(crate) paths: Vec<MountPath>,
    /// Whether every mount of the volume that the caller sees is read-only.
    pub(crate) sees_only_read_only: bool,
}

/// An argument that is a path in a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountPath {
    pub(crate) written: Vec<u8>,
    /// Relative to the root of the file system.
    pub(crate) path: Vec<u8>,
    /// Whether the caller's mount is read-only, perhaps only this one of several.
    pub(crate) is_read_only: bool,
}

impl MountSession {
    /// Returns whether it is mounted read-only now.
    pub(crate) fn is_read_only(&self) -> bool {
        is_read_only(self.served.device)
    }

    fn path_of(&self, argument: &[u8]) -> Option<&MountPath> {
        self.paths.iter().find(|of| of.written == argument)
    }

    /// Returns whether the mount of an argument's path is read-only for the caller.
    pub(crate) fn is_read_only_at(&self, argument: &[u8]) -> bool {
        self.sees_only_read_only || self.path_of(argument).is_none_or(|of| of.is_read_only)
    }

    /// Makes the kernel write back its dirty pages of a subvolume, or of all.
    pub(crate) fn write_back(&self, subvolume: Option<RootId>) -> anyhow::Result<()> {
        let written = self
            .served
            .pages
            .as_ref()
            .map(|pages| pages.write_back(subvolume));
        let written = written.unwrap_or(Ok(()));
        written.context("the kernel has not written back all that was written to the mount")
    }
}

impl Session {
    /// Creates the session of a shell. Paths are relative to `files`.
    pub(crate) fn of_shell(image: PathBuf, volume: Volume, files: Subvolume) -> Session {
        let dir = Mutex::new(b"/".to_vec());
        Session {
            place: image,
            volume,
            files,
            kind: Kind::Shell { dir },
        }
    }

    pub(crate) fn of_mount(
        mountpoint: PathBuf,
        engine: &Arc<Engine>,
        mount: MountSession,
    ) -> anyhow::Result<Session> {
        let volume = Volume::of_engine(engine);
        let files = volume.subvolume_by_id(mount.served.root.root.0).reason()?;
        Ok(Session {
            place: mountpoint,
            volume,
            files,
            kind: Kind::Mount(Box::new(mount)),
        })
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns the engine of the volume, for the mount that it serves.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.volume.engine()
    }

    pub(crate) fn volume_for(&self, access: DeviceAccess) -> anyhow::Result<Volume> {
        let is_remounted = || self.mount().is_some_and(MountSession::is_read_only);
        if access == DeviceAccess::Write && (self.volume.is_read_only() || is_remounted()) {
            match self.mount() {
                Some(_) => bail!("'{}' is mounted read-only", self.place.display()),
                None => bail!("the shell was started with --read-only"),
            }
        }
        Ok(self.volume.clone())
    }

    pub(crate) fn files(&self) -> &Subvolume {
        &self.files
    }

    pub(crate) fn mount(&self) -> Option<&MountSession> {
        match &self.kind {
            Kind::Mount(mount) => Some(mount),
            Kind::Shell { .. } => None,
        }
    }

    /// Returns the rights of the caller, or None if everything is allowed.
    pub(crate) fn rights(&self) -> Option<Rights<'_>> {
        let mount = self.mount()?;
        Some(Rights {
            caller: &mount.caller,
            volume: self.engine(),
            user_subvol_rm_allowed: mount.served.live.user_subvol_rm_allowed(),
        })
    }

    /// Checks that the caller in a mount may search the directories of a path.
    pub(crate) fn check_reach(&self, path: &[u8]) -> Result<(), Refused> {
        match (self.rights(), self.mount()) {
            (Some(rights), Some(mount)) => rights.reach(mount.served.root, path),
            _ => Ok(()),
        }
    }

    pub(crate) fn dir(&self) -> Vec<u8> {
        match &self.kind {
            Kind::Shell { dir } => dir.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Kind::Mount(_) => b"/".to_vec(),
        }
    }

    pub(crate) fn set_dir(&self, path: Vec<u8>) {
        if let Kind::Shell { dir } = &self.kind {
            *dir.lock().unwrap_or_else(PoisonError::into_inner) = path;
        }
    }

    /// Returns the absolute path for an argument, or None if it is elsewhere.
    pub(crate) fn absolute(&self, argument: &[u8]) -> Option<Vec<u8>> {
        if let Some(mount) = self.mount() {
            return mount.path_of(argument).map(|of| of.path.clone());
        }
        if argument.starts_with(b"/") {
            return Some(argument.to_vec());
        }
        let mut absolute = self.dir();
        if !absolute.ends_with(b"/") {
            absolute.push(b'/');
        }
        absolute.extend_from_slice(argument);
        Some(absolute)
    }

    /// Returns the notation of an absolute path for use outside.
    pub(crate) fn outside(&self, path: &[u8]) -> Vec<u8> {
        let place = self.place.as_os_str().as_bytes();
        match self.mount() {
            None => [place, b":", path].concat(),
            Some(_) => {
                let path = path.strip_prefix(b"/").unwrap_or(path);
                let joined = self.place.join(OsStr::from_bytes(path));
                let bytes = joined.into_os_string().into_encoded_bytes();
                if path.is_empty() {
                    place.to_vec()
                } else {
                    bytes
                }
            }
        }
    }
}

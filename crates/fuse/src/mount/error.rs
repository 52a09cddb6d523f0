//! Errors between a command and a mount, with messages in the style of mount(8) and umount(8).

use std::io;
use std::path::PathBuf;

use ubtrfs_format::ids::RootId;

use super::options::OptionError;

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{}: mount point does not exist", .0.display())]
    NoMountpoint(PathBuf),
    #[error("{}: mount point is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{}: cannot use the mount point: {error}", path.display())]
    Mountpoint { path: PathBuf, error: io::Error },
    #[error("{} already mounted on {}", source_path.display(), mountpoint.display())]
    AlreadyMounted {
        source_path: PathBuf,
        mountpoint: PathBuf,
    },
    #[error(
        "{}: the process that served the mount there has ended, and the stale mount cannot be removed: {error}",
        mountpoint.display()
    )]
    ServerGone {
        mountpoint: PathBuf,
        error: UnmountError,
    },
    #[error(
        "{}: the process that served the mount has ended: unmount it, or mount again",
        .0.display()
    )]
    NotServed(PathBuf),
    #[error("the root directory cannot be read: {0}")]
    RootDirectory(#[source] ubtrfs_fs::Error),
    #[error("{}: not a block device, or not root: mount option 'blkdev' needs both", .0.display())]
    NotABlockMount(PathBuf),
    #[error("{}: cannot get a loop device: {error}", image.display())]
    NoLoop { image: PathBuf, error: io::Error },
    #[error("no /dev/fuse: the kernel has no FUSE, or its module is not loaded (modprobe fuse)")]
    NoFuse,
    #[error("cannot open /dev/fuse: {0}")]
    OpenFuse(io::Error),
    #[error(
        "fusermount3 not found: install the package fuse3, which lets users mount, or mount as root"
    )]
    NoHelper,
    #[error("{0}")]
    Helper(String),
    #[error("cannot run fusermount3: {0}")]
    RunHelper(io::Error),
    #[error(
        "{}: the volume was opened read-only, or a transaction failed: unmount it and mount it again",
        .0.display()
    )]
    OpenedForReading(PathBuf),
    #[error("{}: mount failed: {error}", mountpoint.display())]
    Mount {
        mountpoint: PathBuf,
        error: io::Error,
    },
    #[error("the kernel and the file system could not agree on the FUSE protocol: {0}")]
    Handshake(io::Error),
    #[error("cannot start the file system's threads: {0}")]
    Threads(io::Error),
    #[error("the connection to the kernel failed: {0}")]
    Connection(io::Error),
    #[error("a thread of the file system panicked")]
    Panicked,
    #[error("the last changes could not be committed: {0}")]
    Close(#[source] ubtrfs_fs::Error),
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("subvolume '{0}' not found")]
    NoSubvolume(String),
    #[error("'{0}' is not a subvolume")]
    NotASubvolume(String),
    #[error("no subvolume has the id {0}")]
    NoSubvolumeId(RootId),
    #[error("subvolume '{path}' has the id {found}, not {wanted}")]
    SubvolumeMismatch {
        path: String,
        found: RootId,
        wanted: RootId,
    },
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Volume(#[from] ubtrfs_fs::Error),
    #[error(transparent)]
    Unmount(#[from] UnmountError),
}

#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    #[error("{}: no such file or directory", .0.display())]
    NoSuchPath(PathBuf),
    #[error("{}: not mounted", .0.display())]
    NotMounted(PathBuf),
    #[error("{}: mounted as {fs_type}, not by ubtrfs", path.display())]
    NotOurs { path: PathBuf, fs_type: String },
    #[error("{}: target is busy: something still has a file or its working directory there", .0.display())]
    Busy(PathBuf),
    #[error("{}: another mount is on top of it: unmount that one first", .0.display())]
    Covered(PathBuf),
    #[error("{}: must be superuser or the user who mounted it to unmount", .0.display())]
    NotPermitted(PathBuf),
    #[error(
        "{}: the connection cannot be ended: {error} (it takes root, or fusectl at /sys/fs/fuse/connections)",
        path.display()
    )]
    NotAborted { path: PathBuf, error: io::Error },
    #[error("{}: unmount failed: {error}", path.display())]
    Failed { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Helper(String),
    #[error("cannot read the table of mounts: {0}")]
    Table(io::Error),
}

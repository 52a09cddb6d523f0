//! Mounting a volume: options, the mount itself, its life as a process, and its end.
//!
//! The mount's type is `fuse.ubtrfs` and its source is the image. A block device, or a loop device in place of the
//! image, has the type `fuseblk.ubtrfs` (see `block`). `findmnt -t fuse.ubtrfs,fuseblk.ubtrfs` lists our mounts.
//! Set-user-id bits and device nodes are effective when root mounts, as with `mount -t btrfs`, unless an option forbids
//! them or lets users mount. They never are in a user's mount.

mod another;
mod attach;
mod background;
mod block;
mod closing;
mod detach;
mod error;
mod forced_ro;
mod holders;
mod live;
mod mount_place;
mod options;
mod privileges;
mod remount;
mod server;
mod service;
mod session;
mod subvolume;
mod teardown;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::MountFlags;
use rustix::process::geteuid;
use ubtrfs_fs::{AtimePolicy, Volume};
use ubtrfs_fuse_server::request::{ConnectionFlags, FileSystem};
use ubtrfs_fuse_server::{Capacity, Connection};

use self::attach::{Attachment, attach};
use self::block::{Reclaim, attach_volume};
use self::closing::Closing;
use self::forced_ro::ForcedReadOnly;
use self::holders::is_of_dead_server;
use crate::adapter::Adapter;
pub use crate::adapter::{CONTROL_ATTRIBUTE, ControlPoint, KnownNonce, Nonce};
use crate::caller::sees_all_callers;
use crate::mount_table::mount_at;
use crate::stats::{Counted, Stats};

pub use self::background::{Launched, Readiness, launch};
pub use self::detach::{IfBusy, mount_meant_by, unmount};
pub use self::error::{MountError, UnmountError};
pub use self::holders::{Holder, holders_of};
pub use self::live::LiveOptions;
pub use self::options::{
    BlockMount, OptionError, Options, WithoutEffect, words_for_help, words_of_remounts,
    words_to_complete,
};
pub use self::privileges::drop_capabilities;
pub use self::remount::{Remount, Remounted};
pub use self::server::{Afterwards, Server, Work, mountpoint_of, mountpoint_served_by};
pub use self::service::MountService;
pub use self::session::Session;
pub use self::teardown::Teardown;
pub use crate::mount_table::{
    BLOCK_FS_TYPE, FS_TYPE, TableEntry, is_read_only, is_read_only_to, mount_table,
};
pub use ubtrfs_fuse_server::TransportChoice;

/// Mounts a subvolume of a volume, for writing if the volume is open for that. `source` is displayed in the mount
/// table. The session closes the volume when the mount is gone.
pub fn mount(
    volume: Arc<Volume>,
    source: &Path,
    mountpoint: &Path,
    options: &Options,
) -> Result<Session, MountError> {
    let root = subvolume::root_directory(&volume, options.subvol.as_deref(), options.subvolid)?;
    // As the kernel does: without its root, nothing in a mount can be reached.
    volume.attr(root).map_err(MountError::RootDirectory)?;
    let writable = volume.is_writable();
    let connection_flags = ConnectionFlags {
        posix_acl: volume.counts_acls(),
        writable,
        writeback_cache: writable && options.writeback,
        // With `fakeroot` the kernel checks no permissions.
        idmapped: !options.fakeroot && sees_all_callers(),
    };
    let live = LiveOptions::new(options);
    let adapter = Adapter::new(Arc::clone(&volume), root, connection_flags)
        .with_opens(options.needs_opens())
        .with_live_rules(live.rules())
        .syncing_names(options.dirsync)
        .for_fakeroot(options.fakeroot);
    let changes = adapter.changes();
    let device_number = adapter.device();
    let control = adapter.control();
    let pages = adapter.kernel_pages();
    let close_failure = adapter.close_failure();
    let shown_by = adapter.shown_by();
    let mountpoint = check_mountpoint(mountpoint, source)?;
    let wanted = attachment(&mountpoint, source, writable, options);
    let attach = || attach_volume(&volume, &wanted, options, &shown_by);
    let stats = Arc::new(Stats::new());
    let counted = Counted::new(adapter, Arc::clone(&stats));
    let mut session = serve(counted, attach, &mountpoint, options)?;
    session.stats = Some(stats);
    session.root = Some(root);
    session.live = live;
    session.control = Some(control);
    session.pages = Some(Arc::new(pages));
    session.tell_changes_by(changes);
    if let Some(number) = session.device() {
        device_number.set(number);
    }
    // Services end in reverse order, so the first one added ends last.
    session.volume = Some(Arc::downgrade(&volume));
    if let Some(lifetime) = volume.lifetime() {
        session.add_service(ForcedReadOnly::watch(lifetime, session.device())?);
    }
    let reclaim = Reclaim::of(&volume, source, session.device());
    session.add_service(Closing::new(volume, close_failure, reclaim));
    Ok(session)
}

/// Mounts any implementation of `FileSystem`.
pub fn mount_file_system(
    file_system: impl FileSystem,
    source: &Path,
    mountpoint: &Path,
    options: &Options,
) -> Result<Session, MountError> {
    let mountpoint = check_mountpoint(mountpoint, source)?;
    let writable = file_system.connection_flags().writable;
    let wanted = attachment(&mountpoint, source, writable, options);
    serve(file_system, || attach(&wanted), &mountpoint, options)
}

fn attachment<'a>(
    mountpoint: &'a Path,
    source: &'a Path,
    writable: bool,
    options: &'a Options,
) -> Attachment<'a> {
    Attachment {
        mountpoint,
        source,
        flags: mount_flags(options, writable),
        allow_other: allow_other(options),
        default_permissions: !options.fakeroot,
        security: contexts(options),
    }
}

/// The reason why a mount is not served.
struct Unserved<F> {
    error: MountError,
    /// The file system, as in `Refused`.
    but_for_rings: Option<F>,
}

impl<F> From<MountError> for Unserved<F> {
    fn from(error: MountError) -> Self {
        Self {
            error,
            but_for_rings: None,
        }
    }
}

/// Serves the connection that `attach` mounts. The kernel may negotiate io_uring and then refuse it, for example if it
/// is turned off in between. It may then hold back all requests of that mount for ever, so another one without io_uring
/// is made.
fn serve<F: FileSystem>(
    file_system: F,
    attach: impl Fn() -> Result<OwnedFd, MountError>,
    mountpoint: &Path,
    options: &Options,
) -> Result<Session, MountError> {
    let mounted_by = |file_system, transport| {
        let device = attach()?;
        let connected = connect(file_system, device, mountpoint, options, transport);
        if connected.is_err() {
            // No server will ever answer there. The first error is more useful than an error of this cleanup.
            if let Ok(Some(entry)) = mount_at(mountpoint) {
                let _ = detach::abort(&entry, None);
            }
        }
        connected
    };
    let unserved = match mounted_by(file_system, options.transport) {
        Ok(session) => return Ok(session),
        Err(unserved) => unserved,
    };
    match unserved.but_for_rings {
        Some(file_system) if options.transport == TransportChoice::Auto => {
            tracing::warn!(error = %unserved.error,
                "the kernel offered io_uring and refuses it: mounting again without it");
            let connected = mounted_by(file_system, TransportChoice::Classic);
            connected.map_err(|unserved| unserved.error)
        }
        _ => Err(unserved.error),
    }
}

fn connect<F: FileSystem>(
    file_system: F,
    device: OwnedFd,
    mountpoint: &Path,
    options: &Options,
    transport: TransportChoice,
) -> Result<Session, Unserved<F>> {
    let threads = options.threads.unwrap_or_else(default_threads);
    let capacity = Capacity::of(options.memory_bytes());
    let watched = device.try_clone().map_err(MountError::Handshake)?;
    let connection = Connection::establish(file_system, device, threads, transport, capacity);
    let connection = connection.map_err(|refused| Unserved {
        error: MountError::Handshake(refused.error),
        but_for_rings: refused.but_for_rings,
    })?;
    Ok(Session::start(mountpoint.into(), watched, connection)?)
}

/// Unmounts our dead mounts at `mountpoint`, including stacked ones. They would fail every access, and their loop
/// device would keep the image in use.
pub fn clear_dead(mountpoint: &Path) -> Result<(), MountError> {
    // Later uses of the path report the error.
    let Ok(place) = detach::resolve(mountpoint) else {
        return Ok(());
    };
    while let Ok(Some(entry)) = mount_at(&place)
        && entry.is_ours()
        && rustix::fs::statfs(&place).is_err_and(is_of_dead_server)
    {
        detach::detach(&place, IfBusy::Detach).map_err(|error| MountError::ServerGone {
            mountpoint: place.clone(),
            error,
        })?;
        tracing::warn!(source = %entry.source.display(), mountpoint = %place.display(),
            "the process that served the mount has ended: the stale mount is removed");
    }
    Ok(())
}

/// Checks that a directory can be a mount point, and returns its absolute path.
fn check_mountpoint(mountpoint: &Path, source: &Path) -> Result<PathBuf, MountError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoMountpoint(mountpoint.into()),
        _ => MountError::Mountpoint {
            path: mountpoint.into(),
            error,
        },
    };
    clear_dead(mountpoint)?;
    let path = mountpoint.canonicalize().map_err(failed)?;
    if let Ok(Some(there)) = mount_at(&path)
        && there.is_ours()
        && there.is_of(source)
    {
        return Err(MountError::AlreadyMounted {
            source_path: source.into(),
            mountpoint: path,
        });
    }
    if !path.metadata().map_err(failed)?.is_dir() {
        return Err(MountError::NotADirectory(mountpoint.into()));
    }
    Ok(path)
}

fn mount_flags(options: &Options, writable: bool) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, !writable);
    let is_root = geteuid().is_root();
    flags.set(MountFlags::NOSUID, !options.suid.unwrap_or(is_root));
    flags.set(MountFlags::NODEV, !options.dev.unwrap_or(is_root));
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(MountFlags::NOSYMFOLLOW, options.no_symfollow);
    flags.set(MountFlags::NOATIME, options.atime == AtimePolicy::Never);
    flags.set(
        MountFlags::STRICTATIME,
        options.atime == AtimePolicy::Always,
    );
    flags.set(MountFlags::NODIRATIME, options.no_diratime);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    // The kernel displays the flag, and applies it to the times that it stores itself (`writeback`).
    flags.set(MountFlags::LAZYTIME, options.volume.has_lazy_times());
    flags
}

/// Returns the SELinux contexts of the mount. A kernel without SELinux refuses them; as with mount(8), they are dropped
/// there.
fn contexts(options: &Options) -> &[String] {
    if Path::new("/sys/fs/selinux/enforce").exists() {
        &options.security
    } else {
        &[]
    }
}

/// Returns whether other users may enter. Mounts by root are open to all users, as with mount(8). Mounts by a user are
/// private by default.
fn allow_other(options: &Options) -> bool {
    options
        .allow_other
        .unwrap_or_else(|| geteuid().is_root() && !options.fakeroot)
}

/// Returns the default number of threads: enough to keep a disk busy while the CPUs decompress.
fn default_threads() -> NonZeroUsize {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new((cpus * 2).clamp(4, 16)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests;

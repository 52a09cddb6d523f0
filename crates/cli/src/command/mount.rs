//! `ubtrfs mount`: a volume as a directory, served by this program until it is unmounted.
//!
//! Without `-f` the command runs itself again to serve the mount (see `ubtrfs_fuse::mount::launch`), and
//! returns when the mount can be used. An environment variable identifies the second run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::io::Errno;
use ubtrfs_assemble::{Disks, OtherDisks, SearchError};
use ubtrfs_device::{Access, DeviceError, DeviceName, Holder};
use ubtrfs_fs::{LEAST_MEMORY_BYTES, OpenOptions, Volume, WordGroup};
use ubtrfs_fuse::mount::{
    self, Launched, MountError, Options, Readiness, Remount, Remounted, Session, WithoutEffect,
};

use crate::presentation::console::Console;
use crate::presentation::error_chain::ErrorChain;
use crate::presentation::log::{self, LogLevel};
use crate::program::Program;
use crate::volume_access::control::{Control, Served, UnmountClients};
use crate::volume_access::held;
use crate::volume_access::location::DeviceOptions;
use crate::volume_access::session::ServedMount;
use crate::volume_access::stream_output;

/// Set in the environment of the second run.
const SERVE: &str = "UBTRFS_SERVE_MOUNT";
/// This program, even if its file was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Mount a volume on a directory without the kernel's btrfs
#[derive(Debug, clap::Args)]
#[command(long_about = help())]
pub(crate) struct Mount {
    /// Options, separated by commas; repeat for more
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// Stay in the foreground; interrupt (Ctrl-C) unmounts
    #[arg(short, long)]
    foreground: bool,
    /// Mount read-only, as -o ro does
    #[arg(short, long)]
    read_only: bool,
    /// Accept unknown options, with a warning
    #[arg(short, long)]
    sloppy: bool,
    /// Check options and stop before the volume is opened
    #[arg(long)]
    fake: bool,
    /// The options are mount(8)'s, which says `rw` whenever `ro` was not given
    #[arg(long, hide = true)]
    helper: bool,
    #[command(flatten)]
    devices: DeviceOptions,
    /// Image or device, or several of one volume, and the directory to mount on
    #[arg(required = true, num_args = 1.., value_names = ["IMAGE", "DIR"])]
    places: Vec<PathBuf>,
}

impl Mount {
    pub(crate) fn run(&self, console: &mut Console, program: &Program) -> anyhow::Result<()> {
        if self.options.iter().any(|words| Remount::is_asked_by(words)) {
            return self.remount();
        }
        let options = self.parse_options()?;
        let (images, mountpoint) = match self.places.as_slice() {
            [images @ .., mountpoint] if !images.is_empty() => (images, mountpoint),
            _ => bail!("the directory to mount on is missing"),
        };
        let images: Vec<DeviceName> = images.iter().map(DeviceName::from).collect();
        if self.fake {
            return Ok(());
        }
        if std::env::var_os(SERVE).is_some() {
            let readiness = Some(Readiness::inherit()?);
            self.serve(&images, mountpoint, &options, readiness, program)
        } else if self.foreground {
            self.serve(&images, mountpoint, &options, None, program)
        } else {
            self.serve_in_background(console)
        }
    }

    fn remount(&self) -> anyhow::Result<()> {
        let mut remount = Remount::default();
        for words in &self.options {
            remount.add(words)?;
        }
        if self.read_only {
            remount.add(OsStr::new("ro"))?;
        }
        if self.helper {
            remount.complete();
        }
        let Some(path) = self.places.last().filter(|_| !self.fake) else {
            return Ok(());
        };
        let Remounted {
            mountpoint,
            live,
            without_effect,
        } = remount.apply(path)?;
        say_without_effect(&without_effect);
        if !live.is_empty() {
            let mut command = process::Command::new(THIS_PROGRAM);
            command.args(["filesystem", "remount"]).args([&live]);
            let outcome = command.arg(&mountpoint).status();
            if !outcome.context("cannot run this program")?.success() {
                bail!(
                    "{}: still mounted without '{}'",
                    mountpoint.display(),
                    live.display()
                );
            }
        }
        if remount.is_read_only() {
            // The kernel does not report this to a plain mount. All written data must become durable, and
            // nothing may be written afterwards.
            let mut sync = process::Command::new(THIS_PROGRAM);
            sync.args(["filesystem", "sync"]).arg(&mountpoint);
            let synced = sync.status().context("cannot run this program")?;
            if !synced.success() {
                bail!("{}: some written data may be lost", mountpoint.display());
            }
        }
        Ok(())
    }

    fn parse_options(&self) -> anyhow::Result<Options> {
        let mut options = Options {
            sloppy: self.sloppy,
            ..Options::default()
        };
        for words in &self.options {
            options.add(words)?;
        }
        if self.read_only {
            options.read_only = Some(true);
        }
        if self.helper && options.read_only == Some(false) {
            options.read_only = None;
        }
        options.check()?;
        Ok(options)
    }

    fn serve_in_background(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut args = std::env::args_os();
        let name = args.next().unwrap_or_else(|| "ubtrfs".into());
        let mut command = process::Command::new(THIS_PROGRAM);
        command.arg0(name).args(args).env(SERVE, "1");
        match mount::launch(command).context("cannot run the process that serves the mount")? {
            Launched::Ready { pid } => {
                tracing::debug!(pid, "serving");
                Ok(())
            }
            // The process has printed its reason.
            Launched::Failed(status) if status.code().is_some() => {
                console.error_was_reported();
                Ok(())
            }
            Launched::Failed(status) => bail!("the process that serves the mount ended: {status}"),
        }
    }

    /// Mounts the volume, and returns when it has been unmounted.
    fn serve(
        &self,
        images: &[DeviceName],
        mountpoint: &Path,
        options: &Options,
        readiness: Option<Readiness>,
        program: &Program,
    ) -> anyhow::Result<()> {
        // While this is the only thread.
        let dropped = mount::drop_capabilities();
        start_log(options)?;
        if let Err(error) = dropped {
            tracing::debug!(%error, "the server keeps all capabilities");
        }
        say_without_effect(&options.without_effect);
        let shown = &images[0];
        let images = images.iter().map(canonical);
        let images: Vec<DeviceName> = images.collect::<anyhow::Result<_>>()?;
        let source = match &options.fsname {
            Some(name) => OsString::from_vec(name.clone()).into(),
            None => images[0].as_path().to_owned(),
        };
        // The kernel clears a huge page at once, which delays a request by half a millisecond or more.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
        // Before the image is opened: the loop device of a dead mount would keep it in use.
        mount::clear_dead(mountpoint)?;
        warn_of_little_memory(options);
        let volume = self.open(&images, options)?;
        let mut session = mount::mount(Arc::clone(&volume), &source, mountpoint, options)
            .with_context(|| format!("cannot mount '{shown}'"))?;
        session.unmount_on_signals()?;
        let unmount_clients = UnmountClients::default();
        listen(volume, options, &unmount_clients, &mut session, program);
        tracing::info!(on = %session.mountpoint().display(), "mounted");
        if let Some(readiness) = readiness {
            // If the command has ended, dropping the session unmounts.
            readiness
                .announce()
                .context("the command that was to mount has ended")?;
            leave_stderr(options);
        }
        if let Some(reason) = session.fallback() {
            // On standard error it is no warning: a user who mounts every day would see it every day.
            if log::is_on_stderr() {
                tracing::info!("requests come through /dev/fuse: {reason}")
            } else {
                tracing::warn!("requests come through /dev/fuse: {reason}")
            }
        }
        let ended = session.wait();
        if let Err(error) = &ended {
            tracing::error!("{error}");
            if matches!(error, MountError::Close(_)) {
                unmount_clients.report_failure();
            }
        }
        // The end of the process closes their connections.
        std::mem::forget(unmount_clients);
        Ok(ended?)
    }

    /// Opens the volume for writing, unless read-only is requested or its source is write-protected.
    fn open(&self, images: &[DeviceName], options: &Options) -> anyhow::Result<Arc<Volume>> {
        let mut names = images.to_vec();
        names.extend_from_slice(&options.devices);
        let devices = self
            .devices
            .clone()
            .or_degraded(options.volume.may_be_degraded());
        let open = |writable| {
            let access = if writable {
                Access::Write
            } else {
                Access::Read
            };
            let open = || {
                devices.open_with(&names, access, |names, places| {
                    let options = options.open_options(writable);
                    let options = options.degraded(devices.is_degraded()).scan(places);
                    let chosen = devices.chosen_volume();
                    open_on_layers(names, &options, chosen, access)
                })
            };
            held::when_free(Duration::ZERO, open).map_err(name_the_mount)
        };
        if options.read_only == Some(true) {
            return open(false);
        }
        match open(true) {
            Err(error) if options.read_only.is_none() && is_write_protected(&error) => {
                let volume = open(false)?;
                if is_marked(&error) || is_on_layers(&error) {
                    tracing::warn!("{error}; mounted read-only");
                } else {
                    tracing::warn!("source write-protected, mounted read-only");
                }
                Ok(volume)
            }
            opened => opened.map_err(name_the_way_to_read),
        }
    }
}

/// Opens a volume directly, or on layers of the named disks.
fn open_on_layers(
    names: &[DeviceName],
    options: &OpenOptions,
    chosen: Option<&str>,
    access: Access,
) -> anyhow::Result<Arc<Volume>> {
    let direct = || Ok(Volume::open(names, options)?);
    let paths: Result<Vec<&Path>, _> = names.iter().map(DeviceName::path).collect();
    let Ok(paths) = paths else {
        return direct();
    };
    let named: Vec<PathBuf> = paths.into_iter().map(Path::to_owned).collect();
    let disks = Disks {
        named: &named,
        others: OtherDisks::At(options.scan_places()),
    };
    let errno_of = |error: &anyhow::Error| {
        let engine = error.downcast_ref::<ubtrfs_fs::Error>();
        engine.map_or(Errno::IO, ubtrfs_fs::Error::errno)
    };
    disks.open(chosen, access, errno_of, direct, |devices| {
        Ok(Volume::from_devices(devices, options)?)
    })
}

/// Returns the name of a device that stays valid in any directory.
fn canonical(image: &DeviceName) -> anyhow::Result<DeviceName> {
    match image {
        DeviceName::Path(path) => {
            let canonical = path.canonicalize();
            let canonical = canonical.with_context(|| format!("cannot access '{image}'"))?;
            Ok(DeviceName::Path(canonical))
        }
        DeviceName::Uri(_) => Ok(image.clone()),
    }
}

fn warn_of_little_memory(options: &Options) {
    let memory = options.memory_bytes();
    if memory < LEAST_MEMORY_BYTES {
        tracing::warn!(
            "{} MiB of memory may be too little for a mount: it needs {} MiB, and may be killed with less",
            memory >> 20,
            LEAST_MEMORY_BYTES >> 20
        );
    }
}

fn say_without_effect(words: &[WithoutEffect]) {
    for idle in words {
        match idle.warning {
            Some(reason) => tracing::warn!("mount option '{}' has no effect: {reason}", idle.word),
            None => tracing::debug!("mount option '{}' has no effect", idle.word),
        }
    }
}

fn is_write_protected(error: &anyhow::Error) -> bool {
    let engine = error.downcast_ref::<ubtrfs_fs::Error>();
    engine.is_some_and(ubtrfs_fs::Error::is_write_protected) || is_on_layers(error)
}

/// Returns whether the volume is on partitions, md arrays or LVM volumes.
fn is_on_layers(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(SearchError::ReadOnly(_)))
}

/// Returns whether the system of a NAS maker has written the volume.
fn is_marked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ubtrfs_fs::Error::Marked(_)))
}

/// Adds the ways to mount a volume whose log cannot be replayed. Neither is done automatically, because
/// synced data in the log would seem lost.
fn name_the_way_to_read(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(engine) if ubtrfs_fs::Error::is_of_log(engine) => anyhow::anyhow!(
            "{}; -o ro,rescue=nologreplay shows the last commit without it, 'rescue zero-log' clears it",
            ErrorChain(&error)
        ),
        Some(engine) if ubtrfs_fs::Error::is_unwritable(engine) => {
            anyhow::anyhow!("{}; -o ro mounts it for reading", ErrorChain(&error))
        }
        _ => error,
    }
}

/// Adds the mount point to the error that another process uses the volume.
fn name_the_mount(error: anyhow::Error) -> anyhow::Error {
    let Some(ubtrfs_fs::Error::Device(DeviceError::InUse { path, holder })) = error.downcast_ref()
    else {
        return error;
    };
    let shown = path.display();
    let named = match holder {
        Holder::Lock { pid: Some(pid) } => mount::mountpoint_served_by(*pid).map(|mountpoint| {
            let mountpoint = mountpoint.display();
            anyhow::anyhow!("{shown} already mounted on {mountpoint} (process {pid})")
        }),
        // No process has locked it.
        Holder::Loop(device) => mount::mountpoint_of(Path::new(device)).map(|mountpoint| {
            let mountpoint = mountpoint.display();
            anyhow::anyhow!(
                "{shown} still mounted on {mountpoint}, but no longer served: unmount it"
            )
        }),
        _ => None,
    };
    named.unwrap_or(error)
}

/// Starts logging to the place from the options.
fn start_log(options: &Options) -> anyhow::Result<()> {
    if let Some(level) = &options.log_level {
        let Ok(level) = LogLevel::from_str(level, true) else {
            bail!("mount option 'loglevel': bad value '{level}'");
        };
        log::set_level(level);
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    let place = match options.log.as_deref() {
        None | Some(b"stderr") => return Ok(()),
        Some(b"syslog") => log::Place::syslog().context("cannot log to the system's logger")?,
        Some(path) => {
            let path = Path::new(OsStr::from_bytes(path));
            stream_output::refuse_volume_at(path)?;
            log::Place::file(path).with_context(|| format!("cannot log to '{}'", path.display()))?
        }
    };
    log::redirect(place);
    Ok(())
}

/// Redirects the log of a background server to syslog, unless a place was given. Such a server has no
/// standard error.
fn leave_stderr(options: &Options) {
    if options.log.is_none()
        && let Ok(syslog) = log::Place::syslog()
    {
        log::redirect(syslog);
    }
}

/// Serves commands on paths in the mount. The mount works without this too.
fn listen(
    volume: Arc<Volume>,
    options: &Options,
    unmount_clients: &UnmountClients,
    session: &mut Session,
    program: &Program,
) {
    let (Some(root), Some(device), Some(point)) =
        (session.root(), session.device(), session.control().cloned())
    else {
        return;
    };
    let served = Served {
        volume,
        mount: ServedMount {
            root,
            live: session.live_options().clone(),
            stats: session.stats().cloned(),
            device,
            changes: session.changes().cloned(),
            pages: session.kernel_pages().cloned(),
        },
        point,
        teardown: Some(session.teardown()),
        unmount_clients: unmount_clients.clone(),
        is_fakeroot: options.fakeroot,
        program: *program,
    };
    match Control::start(served) {
        Ok(control) => session.add_service(control),
        Err(error) => tracing::warn!(%error, "commands cannot reach the mount"),
    }
}

/// Returns the long help, with the words of mount options in the place of their groups.
fn help() -> String {
    let words = |group, opposites| mount::words_for_help(group, opposites).join(", ");
    // Paragraphs are lines.
    let paragraphs = HELP
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    text.replace("{btrfs}", &words(WordGroup::Btrfs, false))
        .replace("{opposites}", &words(WordGroup::Btrfs, true))
        .replace("{system}", &words(WordGroup::System, false))
        .replace("{fuse}", &words(WordGroup::Fuse, false))
        .replace("{ours}", &words(WordGroup::Ours, false))
        .replace("{remount}", &mount::words_of_remounts().join(", "))
}

const HELP: &str = "\
Mount a volume on a directory without the kernel's btrfs

Options of `mount -t btrfs`: `{btrfs}`, and the opposites `{opposites}`. With `space_cache=v2` a volume without a
free-space tree gets one. With `notreelog` a sync of a file or a directory is a commit, and writes no log. Options
without a meaning here (autodefrag, ssd, ...) are accepted, with a warning where that matters.

The modes of `rescue` are `usebackuproot, nologreplay, ignorebadroots, ignoredatacsums, ignoremetacsums,
ignoresuperflags, ignoreitemflags`, and `all`, which is all but the first. `ibadroots` and the like are short forms. `recovery` and
`norecovery` are older names of `usebackuproot` and `nologreplay`.

Freed space is discarded: an image gets holes, and a device receives discards if it supports them. With
`discard=async` that is in the background, some time later; this is the default where a device supports discards. With
`discard=sync` or `discard` it is in the commit, with `nodiscard` only on request (fstrim, `ubtrfs filesystem trim`).

Options of mount(8): `{system}`, `user` and its kin, and `context=` and its kin where there is SELinux. `relatime` is the
default. Reading from the kernel's cache updates no access time, not even with `strictatime`: the kernel does not
report it.

Options of FUSE: `{fuse}`. By default the kernel checks modes and owners (`default_permissions`). With `fakeroot` the
user who mounts may read and change everything, and run every command on the mount, whatever modes and owners say. No
other user may enter.

Options of this program: `{ours}`. `loop` and `noloop` are described below. Caches and buffers are shares of `memory`.
By default it is the memory of the machine, or the limit of the control group if that is less. With `writeback` the
kernel collects what is written, for programs that write little at a time. With `opens` immutable and append-only
files are refused when they are opened, not when they are written to.

fsync(2) and `ubtrfs filesystem sync` make durable what was written to any mount. sync(1), sync -f and syncfs(2) do so
on mounts that root makes of block devices, and with `loop` of images. Then the kernel has a loop device for the
image, and umount(2) waits for the last commit. The kernel sends no sync to other mounts. Data written there is
durable after the next commit.

With `remount` a mount that is there takes others of these: `{remount}`, and their opposites. Then DIR is enough. A mount by root is open
to all users; users who mount need fusermount3 and have the mount to themselves.";

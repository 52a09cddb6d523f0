//! `ubtrfs mount`: a volume as a directory, served by this program until it is unmounted.
//!
//! Without `-f` the command runs itself again to serve the mount (see `ubtrfs_fuse::mount::launch`), and
//! returns when the mount can be used. The second run finds a variable in its environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use anyhow::{Context, bail};
use ubtrfs_fuse::mount::{self, Launched, Options, Readiness, Rescue};

use crate::console::Console;
use crate::location::DeviceOptions;

/// Tells the second run that it is one.
const SERVE: &str = "UBTRFS_SERVE_MOUNT";
/// This very program, even if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Mount a volume on a directory, read-only, without the kernel's btrfs
///
/// Options are those of `mount -t btrfs`: ro, subvol=PATH, subvolid=ID, degraded, device=DEVICE,
/// rescue=..., noacl; those of mount(8): noexec, noatime, suid, dev; and those of FUSE: allow_other,
/// fsname=NAME, threads=N, fakeroot (who mounts may read everything, whatever modes and owners say).
/// Options that only matter to a writer are accepted. A mount by root is open to all users; users who
/// mount need fusermount3 and have the mount to themselves.
#[derive(Debug, clap::Args)]
pub(crate) struct Mount {
    /// Options, separated by commas; repeat for more
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// Stay in the foreground; interrupt (Ctrl-C) unmounts
    #[arg(short, long)]
    foreground: bool,
    #[command(flatten)]
    devices: DeviceOptions,
    /// Image or device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Directory to mount on
    #[arg(value_name = "DIR")]
    mountpoint: PathBuf,
}

impl Mount {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let options = self.parse_options()?;
        if std::env::var_os(SERVE).is_some() {
            self.serve(&options, Some(Readiness::inherit()?))
        } else if self.foreground {
            self.serve(&options, None)
        } else {
            self.serve_in_background(console)
        }
    }

    fn parse_options(&self) -> anyhow::Result<Options> {
        let mut options = Options::default();
        for words in &self.options {
            options.add(words)?;
        }
        options.check()?;
        if options.rescue != Rescue::default() {
            check_rescue(&options.rescue)?;
        }
        for word in &options.without_effect {
            tracing::debug!("mount option '{word}' has no effect on a read-only mount");
        }
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
            // It has said why.
            Launched::Failed(status) if status.code().is_some() => {
                console.error_was_reported();
                Ok(())
            }
            Launched::Failed(status) => bail!("the process that serves the mount ended: {status}"),
        }
    }

    /// Mounts, and returns when the volume has been unmounted.
    fn serve(&self, options: &Options, readiness: Option<Readiness>) -> anyhow::Result<()> {
        let shown = self.image.display();
        let image = self
            .image
            .canonicalize()
            .with_context(|| format!("cannot access '{shown}'"))?;
        let source = match &options.fsname {
            Some(name) => OsString::from_vec(name.clone()).into(),
            None => image.clone(),
        };
        let mut paths = vec![image];
        paths.extend_from_slice(&options.devices);
        let volume = self
            .devices
            .clone()
            .or_degraded(options.degraded)
            .open_all(&paths)?;
        let session = mount::mount(volume, &source, &self.mountpoint, options)
            .with_context(|| format!("cannot mount '{shown}'"))?;
        session.unmount_on_signals()?;
        tracing::info!(on = %session.mountpoint().display(), "mounted");
        if let Some(readiness) = readiness {
            // When the command is not there any more to hear it, dropping the session unmounts.
            readiness
                .announce()
                .context("the command that was to mount has ended")?;
        }
        Ok(session.wait()?)
    }
}

/// What of `rescue=` reading honours already: a mount that is read-only never replays the log.
fn check_rescue(rescue: &Rescue) -> anyhow::Result<()> {
    for (wanted, name) in [
        (rescue.use_backup_root, "usebackuproot"),
        (rescue.ignore_bad_roots, "ignorebadroots"),
        (rescue.ignore_data_csums, "ignoredatacsums"),
        (rescue.ignore_meta_csums, "ignoremetacsums"),
        (rescue.ignore_super_flags, "ignoresuperflags"),
    ] {
        if wanted {
            bail!("mount option 'rescue={name}' is not supported yet");
        }
    }
    Ok(())
}

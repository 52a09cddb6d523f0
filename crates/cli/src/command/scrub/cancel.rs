//! `ubtrfs scrub cancel`: ends a running scrub, which can be resumed.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use ubtrfs_device::clock;

use super::mounted::MountScrub;
use super::serving::Running;
use super::target::{fsid_of, shown};
use crate::presentation::console::Console;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;

/// The exit code of btrfs-progs if there is no scrub.
const NOT_RUNNING: u8 = 2;
const PAUSE: Duration = Duration::from_millis(50);
/// The time for a scrub to end, which may commit.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cancel a running scrub
///
/// It can be continued with 'scrub resume'. Exit code 2: no scrub is running.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    /// An image, a device, or a path in a mount
    #[arg(value_name = "IMAGE")]
    location: Location,
}

impl Cancel {
    pub(super) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let image = self.location.image.as_path();
        if let Some((asked, devid)) = Asked::mount_of_device(image) {
            let mount = MountScrub::new(asked, Some(devid))?;
            return self.cancel_mount(console, &mount);
        }
        let fsid = fsid_of(image)?;
        let Some(pid) = Running::find(&fsid).and_then(|running| running.pid) else {
            return self.refuse(console);
        };
        kill_process(pid, Signal::INT).context("cannot end the process of the scrub")?;
        wait_for_end(&fsid);
        say_cancelled(console)
    }

    fn cancel_mount(&self, console: &mut Console, mount: &MountScrub) -> anyhow::Result<()> {
        match mount.cancel() {
            Ok(()) => {
                wait_for_end(&mount.fsid);
                say_cancelled(console)
            }
            Err(Errno::NOTCONN) => self.refuse(console),
            Err(error) => {
                Err(error).context(format!("scrub cancel failed on {}", shown(&self.location)))
            }
        }
    }

    fn refuse(&self, console: &mut Console) -> anyhow::Result<()> {
        console.fail_with(NOT_RUNNING);
        bail!(
            "scrub cancel failed on {}: not running",
            shown(&self.location)
        )
    }
}

/// Waits until the record of a cancelled scrub is written, but not for a stopped process.
fn wait_for_end(fsid: &str) {
    let start = clock::now();
    while Running::find(fsid).is_some() && clock::now() - start < PATIENCE {
        clock::sleep(PAUSE);
    }
}

fn say_cancelled(console: &mut Console) -> anyhow::Result<()> {
    if !console.quiet {
        writeln!(console.out, "scrub cancelled")?;
    }
    Ok(())
}

impl ByIoctls for Cancel {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        let mount = MountScrub::new(Asked::open(&self.location)?, None)?;
        self.cancel_mount(console, &mount)
    }
}

//! `ubtrfs umount`: the end of a mount.

use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_fuse::mount::{self, Afterwards, IfBusy, Server};

use crate::console::Console;

/// How long the server of a mount may take to end. What was written is durable then, which takes as long as it takes.
const AT_MOST: Duration = Duration::from_secs(600);

/// Unmount volumes that `ubtrfs mount` mounted
#[derive(Debug, clap::Args)]
pub(crate) struct Umount {
    /// Take the name away now, and end when nobody uses the mount any more
    #[arg(short, long)]
    lazy: bool,
    /// Where it is mounted, or the image or device that is mounted
    #[arg(required = true, value_name = "DIR|IMAGE")]
    targets: Vec<PathBuf>,
}

impl Umount {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let if_busy = if self.lazy {
            IfBusy::Detach
        } else {
            IfBusy::Refuse
        };
        for target in &self.targets {
            let server = Server::of(target);
            match mount::unmount(target, if_busy) {
                Err(error) => console.error(error),
                Ok(()) if self.lazy => {}
                Ok(()) => wait_for_the_end(server, console),
            }
        }
        Ok(())
    }
}

/// The volume is free, for mkfs say, when its server has ended.
fn wait_for_the_end(server: Option<Server>, console: &mut Console) {
    let Some(server) = server.filter(Server::runs_this_program) else {
        return;
    };
    match server.wait(AT_MOST) {
        Afterwards::Ended => {}
        Afterwards::LivesOn => {
            console.warning("unmounted here, but still mounted elsewhere, and served");
        }
        Afterwards::Ending => {
            console.warning("unmounted, but the process that served the mount has not ended yet");
        }
    }
}

//! `ubtrfs umount`: the end of a mount.

use std::path::PathBuf;

use ubtrfs_fuse::mount::{self, IfBusy};

use crate::console::Console;

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
            if let Err(error) = mount::unmount(target, if_busy) {
                console.error(error);
            }
        }
        Ok(())
    }
}

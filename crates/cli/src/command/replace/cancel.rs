//! `ubtrfs replace cancel`: ends a replacement on a mount of the kernel.

use crate::presentation::console::Console;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;

/// The exit code of btrfs-progs if no replacement is in progress.
const NOT_STARTED: u8 = 2;

/// Cancel a replacement on a mount of the kernel
///
/// A replacement by ubtrfs ends with its command: press Ctrl-C there.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[arg(value_name = "IMAGE")]
    location: Location,
}

impl Cancel {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.not_started(console);
        Ok(())
    }

    fn not_started(&self, console: &mut Console) {
        let place = self.location.shown_volume();
        console.say(format_args!(
            "INFO: ioctl(DEV_REPLACE_CANCEL)\"{place}\": not started"
        ));
        console.end_with(NOT_STARTED);
    }
}

impl ByIoctls for Cancel {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        if !Asked::open(&self.location)?.cancel_replace()? {
            self.not_started(console);
        }
        Ok(())
    }
}

//! `ubtrfs filesystem sync`: commits all changes.

use anyhow::Context;

use crate::presentation::console::Console;
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;
use crate::volume_access::session::MountSession;

/// Commit all changes so far
///
/// Commands on an image commit when they are done: this is of use in a mount, and in a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Sync {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(session) = self.location.session() {
            if session.volume().is_read_only() {
                // As in the kernel's mounts: there is nothing to commit.
                return Ok(());
            }
            if session.mount().is_some_and(MountSession::is_read_only) {
                // The mount was made read-only, so this is the last commit.
                return Ok(session.engine().quiesce()?);
            }
        }
        let mut changes = Changes::new(&self.volume);
        let target = changes.open_to_commit(&self.location)?;
        target.volume.sync().reason()?;
        changes.commit()
    }
}

impl ByIoctls for Sync {
    fn run_by_ioctls(&self, _: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let synced = Asked::open(&self.location)?.sync();
        synced.with_context(|| format!("cannot sync '{}'", self.location))
    }
}

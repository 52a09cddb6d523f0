//! `ubtrfs subvolume sync`: the space of deleted subvolumes freed.

use std::io::Write;

use anyhow::{Context, bail};
use ubtrfs_engine::Volume;
use ubtrfs_format::ids::RootId;

use crate::changes::Changes;
use crate::console::Console;
use crate::location::{Location, VolumeOptions};

/// Free the space of deleted subvolumes
#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Wait for these subvolumes; otherwise for all that are deleted
    #[arg(value_name = "ID")]
    ids: Vec<u64>,
    /// Seconds between looks (no effect)
    #[arg(short = 's', value_name = "SECONDS")]
    _seconds: Option<u64>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Sync {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        let volume = changes.open_to_commit(&self.location)?.volume;
        let ids = self.ids(&volume)?;
        if ids.is_empty() {
            return changes.commit();
        }
        let all = ids.len();
        let plural = if all == 1 { "" } else { "s" };
        writeln!(console.out, "Waiting for {all} subvolume{plural}")?;
        let freed = volume.free_deleted_subvolumes();
        freed.context("cannot free the space of deleted subvolumes")?;
        for (index, id) in ids.into_iter().enumerate() {
            writeln!(
                console.out,
                "Subvolume id {id} is gone ({}/{all})",
                index + 1
            )?;
        }
        changes.commit()
    }

    fn ids(&self, volume: &Volume) -> anyhow::Result<Vec<RootId>> {
        let deleted = volume.deleted_subvolumes()?;
        if self.ids.is_empty() {
            return Ok(deleted.into_iter().map(|info| info.id).collect());
        }
        for &id in &self.ids {
            if !(RootId::FIRST_FREE..=RootId::LAST_FREE).contains(&id) {
                bail!("subvolume id {id} out of range");
            }
            let is_alive = volume
                .subvolumes()?
                .iter()
                .any(|info| info.id == RootId(id));
            if is_alive && !deleted.iter().any(|info| info.id == RootId(id)) {
                bail!("subvolume {id} was not deleted");
            }
        }
        Ok(self.ids.iter().copied().map(RootId).collect())
    }
}

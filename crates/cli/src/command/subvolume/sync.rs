//! `ubtrfs subvolume sync`: frees the space of deleted subvolumes.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use ubtrfs::Volume;
use ubtrfs_device::clock;
use ubtrfs_format::ids::RootId;

use crate::presentation::console::Console;
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Free the space of deleted subvolumes
#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Wait for these subvolumes, also until others delete them on a mount; otherwise for all that are deleted
    #[arg(value_name = "ID")]
    ids: Vec<u64>,
    /// Seconds between checks [default: 0.2]; only for mounts that ubtrfs asks by ioctls
    #[arg(short = 's', value_name = "SECONDS", value_parser = parse_pause)]
    pause: Option<Duration>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Sync {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let waits = self.location.session().is_some() && !self.ids.is_empty();
        if waits {
            self.wait_for_deletions(console)?;
        }
        let mut changes = Changes::new(&self.volume);
        let volume = changes.open_to_commit(&self.location)?.volume;
        let ids = self.ids(&volume)?;
        if ids.is_empty() {
            return changes.commit();
        }
        let all = ids.len();
        if !waits {
            say_how_many(all, console)?;
        }
        let freed = volume.free_deleted_subvolumes().reason();
        freed.context("cannot free the space of deleted subvolumes")?;
        for (index, id) in ids.into_iter().enumerate() {
            say_gone(id, index + 1, all, console)?;
        }
        changes.commit()
    }

    fn ids(&self, volume: &Volume) -> anyhow::Result<Vec<RootId>> {
        if self.ids.is_empty() {
            let all = volume.subvolumes().reason()?;
            let deleted = all.iter().filter(|info| info.is_deleted);
            return Ok(deleted.map(|info| RootId(info.id)).collect());
        }
        self.check_ids()?;
        // No process can delete it while this command holds the image.
        if let Some(id) = self.first_alive(volume)? {
            bail!("subvolume {id} was not deleted");
        }
        Ok(self.ids.iter().copied().map(RootId).collect())
    }

    /// Waits until the given subvolumes have been deleted, as other processes may do on a mount.
    fn wait_for_deletions(&self, console: &mut Console) -> anyhow::Result<()> {
        self.check_ids()?;
        say_how_many(self.ids.len(), console)?;
        console.out.flush()?;
        let volume = self.volume.devices.open(&self.location)?;
        while self.first_alive(&volume)?.is_some() {
            if console.client_has_gone() {
                bail!("cancelled");
            }
            clock::sleep(self.pause.unwrap_or(PAUSE));
        }
        Ok(())
    }

    fn first_alive(&self, volume: &Volume) -> anyhow::Result<Option<u64>> {
        for &id in &self.ids {
            let info = volume.subvolume_info(id).reason()?;
            if info.is_some_and(|info| !info.is_deleted) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Checks that subvolumes can have these ids.
    fn check_ids(&self) -> anyhow::Result<()> {
        let ids = RootId::FIRST_FREE..=RootId::LAST_FREE;
        match self.ids.iter().find(|id| !ids.contains(id)) {
            Some(id) => bail!("subvolume id {id} out of range"),
            None => Ok(()),
        }
    }
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    match seconds {
        Some(Ok(pause)) if !pause.is_zero() => Ok(pause),
        _ => Err("not a number of seconds above 0".into()),
    }
}

fn say_how_many(all: usize, console: &mut Console) -> anyhow::Result<()> {
    let plural = if all == 1 { "" } else { "s" };
    Ok(writeln!(
        console.out,
        "Waiting for {all} subvolume{plural}"
    )?)
}

fn say_gone(id: RootId, number: usize, all: usize, console: &mut Console) -> anyhow::Result<()> {
    let out = &mut console.out;
    Ok(writeln!(out, "Subvolume id {id} is gone ({number}/{all})")?)
}

/// The default time between checks whether subvolumes are freed.
const PAUSE: Duration = Duration::from_millis(200);

impl ByIoctls for Sync {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let states = asked.subvolume_states();
        let states = states.context("cannot see which subvolumes are deleted")?;
        let mut left: Vec<RootId> = if self.ids.is_empty() {
            let deleted = states.iter().filter(|(_, is_alive)| !**is_alive);
            deleted.map(|(id, _)| *id).collect()
        } else {
            self.ids.iter().copied().map(RootId).collect()
        };
        self.check_ids()?;
        if left.is_empty() {
            return Ok(());
        }
        let all = left.len();
        say_how_many(all, console)?;
        console.out.flush()?;
        // A commit wakes the thread that frees them.
        asked.sync()?;
        let pause = self.pause.unwrap_or(PAUSE);
        let mut gone = 0;
        loop {
            let mut waiting = Vec::new();
            for id in left {
                if asked.has_root_item(id)? {
                    waiting.push(id)
                } else {
                    gone += 1;
                    say_gone(id, gone, all, console)?;
                }
            }
            console.out.flush()?;
            if waiting.is_empty() {
                return Ok(());
            }
            left = waiting;
            clock::sleep(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_seconds_above_zero() {
        let millis = |text| parse_pause(text).map(|pause| pause.as_millis());
        assert_eq!((millis("2"), millis("0.2")), (Ok(2000), Ok(200)));
        for text in ["0", "-1", "1e30", "NaN", "soon", ""] {
            assert!(parse_pause(text).is_err(), "{text}");
        }
    }
}

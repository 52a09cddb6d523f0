//! `ubtrfs subvolume create`: creates subvolumes.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ubtrfs::Dir;

use super::Qgroups;
use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{self, NameIn, PlaceError};
use crate::volume_access::reason::Reasoned;

/// Make subvolumes
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Make the directories above as well
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    qgroups: Qgroups,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Create {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.qgroups.refuse()?;
        let make = |target: &Target, location: &Location, console: &mut Console| {
            report(location, self.make(target, location), console)
        };
        Changes::each(&self.volume, &self.locations, console, make)
    }

    fn make(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        if self.parents
            && let Some((above, _)) = place::split(&location.path)
        {
            make_path(target, above)?;
        }
        let NameIn { dir, name, .. } = target.name_in(location)?;
        dir.create_subvolume(&name, &target.new_dir()).reason()?;
        Ok(target.entry_changed(&dir, name.as_bytes())?)
    }
}

impl ByIoctls for Create {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        for location in &self.locations {
            if let Err(error) = report(location, self.ask(location), console) {
                console.failed(&error);
            }
        }
        Ok(())
    }
}

impl Create {
    fn ask(&self, location: &Location) -> anyhow::Result<()> {
        let path = location.written_path().as_os_str().as_bytes();
        let (dir, name) = place::split(path).ok_or(PlaceError::NoName)?;
        let dir = Path::new(OsStr::from_bytes(dir));
        if self.parents {
            // Without dots: `create_dir_all` may not follow a new name with them.
            let dir: PathBuf = dir.components().collect();
            std::fs::create_dir_all(dir)?;
        }
        let dir = Asked::at(dir).with_context(|| format!("cannot access '{location}'"))?;
        let qgroups = self.qgroups.inherited_in(&dir)?;
        Ok(dir.create_subvolume(name, &qgroups)?)
    }
}

fn report(
    location: &Location,
    made: anyhow::Result<()>,
    console: &mut Console,
) -> anyhow::Result<()> {
    made.with_context(|| format!("Could not create subvolume '{location}'"))?;
    if !console.quiet {
        writeln!(console.out, "Create subvolume '{location}'")?;
    }
    Ok(())
}

/// Enters the directories of a path one by one, and creates the missing ones.
fn make_path(target: &Target, path: &[u8]) -> anyhow::Result<()> {
    let names = path.split(|&byte| byte == b'/');
    let mut at = target.open_dir(Path::new("/")).reason()?;
    for name in names.filter(|name| !name.is_empty()) {
        at = enter_or_make(target, &at, OsStr::from_bytes(name))?;
    }
    Ok(())
}

fn enter_or_make(target: &Target, dir: &Dir, name: &OsStr) -> anyhow::Result<Dir> {
    let missing = match dir.open_dir(name).reason() {
        Err(error) if error.is_missing() => error,
        found => return Ok(found?),
    };
    // A dangling link.
    if dir.symlink_metadata(name).is_ok() {
        return Err(missing.into());
    }
    let made = dir.create_dir(name, &target.new_dir()).reason()?;
    target.entry_changed(dir, name.as_bytes())?;
    Ok(made)
}

//! `ubtrfs subvolume create`: new subvolumes.

use std::ffi::OsString;
use std::io::Write;

use anyhow::Context;
use ubtrfs_engine::NewInode;

use super::refuse_qgroups;
use crate::changes::{Changes, Target};
use crate::command::mkdir::{make_directory, make_path};
use crate::console::Console;
use crate::location::{Location, VolumeOptions};
use crate::place;

/// Make subvolumes
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Make the directories above as well
    #[arg(short, long)]
    parents: bool,
    /// Not done: ubtrfs does not write quota groups
    #[arg(short = 'i', value_name = "QGROUP", hide = true)]
    qgroups: Vec<OsString>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Create {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        refuse_qgroups(&self.qgroups)?;
        let make = |target: &Target, location: &Location, console: &mut Console| {
            self.make(target, location)
                .with_context(|| format!("Could not create subvolume '{location}'"))?;
            if !console.quiet {
                writeln!(console.out, "Create subvolume '{location}'")?;
            }
            Ok(())
        };
        Changes::each(&self.volume, &self.locations, console, make)
    }

    fn make(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        let maker = target.maker();
        if self.parents
            && let Some((above, _)) = place::split(&location.path)
        {
            make_path(target, above, &|dir, name, _| {
                make_directory(target, dir, name, maker.umask)
            })?;
        }
        let place = target.place(location)?;
        if let (Some(rights), None) = (target.rights(), place.existing) {
            rights.add_to(place.dir)?;
        }
        let root = NewInode {
            umask: maker.umask,
            uid: maker.uid,
            gid: maker.gid,
            ..NewInode::directory(0o777)
        };
        let volume = &target.volume;
        volume.create_subvolume(place.dir, &place.name, &root)?;
        Ok(target.entry_changed(place.dir, &place.name)?)
    }
}

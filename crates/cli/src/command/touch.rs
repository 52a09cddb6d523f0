//! `ubtrfs touch`: times of files set, and empty files made.

use anyhow::Context;
use ubtrfs_engine::{Error, FileId, FileTime, NewInode, SetAttr, SetTime};

use crate::presentation::clock;
use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::operand::Operand;

/// Set the times of files, and make those that do not exist
#[derive(Debug, clap::Args)]
pub(crate) struct Touch {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Change only the time of access
    #[arg(short)]
    access: bool,
    /// Change only the time of modification
    #[arg(short)]
    modification: bool,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time instead of now: a date with or without time and zone, or @SECONDS
    #[arg(short, long, value_name = "TIME", value_parser = clock::parse, group = "time")]
    date: Option<FileTime>,
    /// Set this time instead of now: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = clock::parse_stamp, group = "time")]
    stamp: Option<FileTime>,
    /// Set the times that this file has, of this machine or IMAGE:/PATH
    #[arg(short, long, value_name = "FILE", group = "time")]
    reference: Option<Operand>,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// What a new file has before the umask.
const EVERYTHING: u32 = 0o666;

/// Times of access and modification.
type Times = (SetTime, SetTime);

impl Touch {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let times = match (&self.reference, self.date.or(self.stamp)) {
            (Some(reference), _) => {
                let (access, modification) = reference.times(&self.volume)?;
                (SetTime::At(access), SetTime::At(modification))
            }
            (_, Some(time)) => (SetTime::At(time), SetTime::At(time)),
            _ => (SetTime::Now, SetTime::Now),
        };
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| {
                self.touch(target, location, times)
                    .with_context(|| format!("cannot touch '{location}'"))
            },
        )
    }

    fn touch(&self, target: &Target, location: &Location, times: Times) -> anyhow::Result<()> {
        let Some(id) = self.file(target, location)? else {
            return Ok(());
        };
        let both = self.access == self.modification;
        let set = SetAttr {
            atime: (both || self.access).then_some(times.0),
            mtime: (both || self.modification).then_some(times.1),
            ..SetAttr::default()
        };
        Ok(target.volume.set_attr(id, &set)?)
    }

    /// The file, which is made if it is missing and should not.
    fn file(&self, target: &Target, location: &Location) -> anyhow::Result<Option<FileId>> {
        let volume = &target.volume;
        let found = match self.no_dereference {
            true => volume.resolve(target.root, &location.path),
            false => volume.resolve_following(target.root, &location.path),
        };
        match found {
            Err(Error::NotFound) if self.no_create || self.no_dereference => Ok(None),
            Err(Error::NotFound) => {
                let place = target.place_of_new_file(location)?;
                let new = NewInode {
                    umask: umask(),
                    ..NewInode::file(EVERYTHING)
                };
                Ok(Some(volume.create(place.dir, &place.name, &new)?))
            }
            found => Ok(Some(found?)),
        }
    }
}

//! `ubtrfs touch`: sets times of files, and creates empty files.

use std::time::SystemTime;

use anyhow::Context;
use ubtrfs::FileTimes;

use crate::presentation::clock;
use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::operand::Operand;
use crate::volume_access::reason::Reasoned;

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
    date: Option<SystemTime>,
    /// Set this time instead of now: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = clock::parse_stamp, group = "time")]
    stamp: Option<SystemTime>,
    /// Set the times that this file has, of this machine or IMAGE:/PATH
    #[arg(short, long, value_name = "FILE", group = "time")]
    reference: Option<Operand>,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Touch {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let times = self.times()?;
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

    /// Returns the times to set.
    fn times(&self) -> anyhow::Result<FileTimes> {
        let given = match (&self.reference, self.date.or(self.stamp)) {
            (Some(reference), _) => Some(reference.times(&self.volume)?),
            (_, Some(time)) => Some((time, time)),
            _ => None,
        };
        let both = self.access == self.modification;
        let mut times = FileTimes::new();
        if both || self.access {
            times = match given {
                Some((access, _)) => times.set_accessed(access),
                None => times.set_accessed_now(),
            };
        }
        if both || self.modification {
            times = match given {
                Some((_, modification)) => times.set_modified(modification),
                None => times.set_modified_now(),
            };
        }
        Ok(times)
    }

    fn touch(&self, target: &Target, location: &Location, times: FileTimes) -> anyhow::Result<()> {
        let (files, path) = (&target.files, location.path_within());
        let set = if self.no_dereference {
            files.set_times_nofollow(path, times)
        } else {
            files.set_times(path, times)
        };
        match set.reason() {
            Err(error) if error.is_missing() && (self.no_create || self.no_dereference) => Ok(()),
            Err(error) if error.is_missing() => {
                Ok(target.make_file(location)?.set_times(times).reason()?)
            }
            set => Ok(set?),
        }
    }
}

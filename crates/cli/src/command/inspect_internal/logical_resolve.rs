//! `ubtrfs inspect-internal logical-resolve`: the files that use an address.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Context;
use serde::Serialize;
use ubtrfs_engine::inspect::{ExtentUser, RootsOfBlocks};
use ubtrfs_format::ids::Logical;

use super::{paths_from, write_location};
use crate::console::Console;
use crate::json;
use crate::location::{Location, VolumeOptions};

/// Show the files that use a logical address
#[derive(Debug, clap::Args)]
pub(crate) struct LogicalResolve {
    /// An address within a data extent, in bytes
    logical: u64,
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// Print inodes instead of paths
    #[arg(short = 'P')]
    inodes: bool,
    /// Every use of the extent counts, also of other parts of it
    #[arg(short = 'o')]
    ignore_offset: bool,
    /// Accepted for scripts; results of any size are shown
    #[arg(short = 's', value_name = "BUFSIZE", hide = true)]
    _bufsize: Option<u64>,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct UserJson {
    inode: u64,
    offset: u64,
    root: u64,
    paths: Vec<String>,
}

impl LogicalResolve {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let volume = &*opened.volume;
        let extent = volume
            .data_extent_at(Logical(self.logical))?
            .with_context(|| format!("no file data at logical {}", self.logical))?;
        let at = (!self.ignore_offset).then_some(self.logical - extent.start.0);
        let mut users: BTreeSet<ExtentUser> = BTreeSet::new();
        let mut roots = RootsOfBlocks::default();
        volume.extent_users(extent.start, at, &mut roots, &mut |user| {
            users.insert(user);
            ControlFlow::Continue(())
        })?;
        if console.is_json() {
            let rows: Vec<UserJson> = users
                .iter()
                .map(|user| {
                    let paths = paths_from(volume, opened.root, user.file())?;
                    Ok(UserJson {
                        inode: user.ino.0,
                        offset: user.offset,
                        root: user.root.0,
                        paths: paths.iter().map(|path| json::text(path)).collect(),
                    })
                })
                .collect::<anyhow::Result<_>>()?;
            return Ok(json::write_list(&mut console.out, "logical-resolve", rows)?);
        }
        for user in users {
            let ExtentUser { root, ino, offset } = user;
            if self.inodes {
                writeln!(console.out, "inode {ino} offset {offset} root {root}")?;
                continue;
            }
            match paths_from(volume, opened.root, user.file()) {
                Ok(paths) => {
                    for path in paths {
                        write_location(console, &self.location, &path)?;
                    }
                }
                Err(error) => {
                    console.error(format_args!("inode {ino} of subvolume {root}: {error:#}"))
                }
            }
        }
        Ok(())
    }
}

//! `ubtrfs inspect-internal logical-resolve`: the files that use an address.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use serde::Serialize;
use ubtrfs_format::ids::Logical;
use ubtrfs_fs::inspect::{ExtentUser, RootsOfBlocks};

use super::mounted_paths::MountedPaths;
use super::{paths_from, root_of, subvolume_path_from, write_location};
use crate::presentation::console::Console;
use crate::presentation::error_chain::ErrorChain;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, VolumeOptions};

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
    /// Show every use of the extent, also of other parts of it
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

/// Returns the paths of a user of the extent.
type PathsOf<'a> = dyn Fn(&ExtentUser) -> anyhow::Result<Vec<Vec<u8>>> + 'a;
/// Returns the path of the user's subvolume from the top level if it cannot be reached from the displayed
/// directory.
type OutOfSight<'a> = dyn Fn(&ExtentUser) -> anyhow::Result<Option<Vec<u8>>> + 'a;

impl LogicalResolve {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let volume = &**opened.volume.engine();
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
        let root = root_of(&opened)?;
        let paths_of = |user: &ExtentUser| paths_from(volume, root, user.file());
        let out_of_sight = |user: &ExtentUser| {
            let (is_below, path) = subvolume_path_from(volume, root, user.root)?;
            Ok((!is_below).then(|| path.strip_prefix(b"/").unwrap_or(&path).to_vec()))
        };
        let write =
            |console: &mut Console, path: &[u8]| write_location(console, &self.location, path);
        self.print(console, users, (&paths_of, &out_of_sight), write)
    }

    fn print(
        &self,
        console: &mut Console,
        users: BTreeSet<ExtentUser>,
        (paths_of, out_of_sight): (&PathsOf<'_>, &OutOfSight<'_>),
        write: impl Fn(&mut Console, &[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        if console.is_json() {
            let rows: Vec<UserJson> = users
                .iter()
                .map(|user| {
                    let paths = paths_of(user)?;
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
            // As in btrfs-progs, because no path leads there.
            if let Ok(Some(subvolume)) = out_of_sight(&user) {
                let shown = match subvolume.as_slice() {
                    [] => Escaped(b"<FS_TREE>"),
                    path => Escaped(path),
                };
                writeln!(
                    console.out,
                    "inode {ino} subvol {shown} could not be accessed: not mounted"
                )?;
                continue;
            }
            match paths_of(&user) {
                Ok(paths) => {
                    for path in paths {
                        write(console, &path)?;
                    }
                }
                Err(error) => {
                    let error = ErrorChain(&error);
                    console.error(format_args!("inode {ino} of subvolume {root}: {error}"))
                }
            }
        }
        Ok(())
    }
}

impl ByIoctls for LogicalResolve {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let mounted = MountedPaths::of(&self.location)?;
        let users = mounted.asked.extent_users(self.logical, self.ignore_offset);
        let users = users.map_err(|error| match error {
            Errno::NOENT => anyhow!("no file data at logical {}", self.logical),
            error => error.into(),
        })?;
        let paths_of = |user: &ExtentUser| Ok(mounted.of_file(user.file())?);
        let out_of_sight = |user: &ExtentUser| {
            if mounted.is_mounted(user.root)? {
                return Ok(None);
            }
            Ok(Some(mounted.path_from_top(user.root)?))
        };
        let write = |console: &mut Console, path: &[u8]| mounted.write(console, path);
        let users = users.into_iter().collect();
        self.print(console, users, (&paths_of, &out_of_sight), write)
    }
}

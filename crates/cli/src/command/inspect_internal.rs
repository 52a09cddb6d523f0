//! `ubtrfs inspect-internal`: the internal structures of a volume.

mod assemble;
mod dump_super;
mod dump_tree;
mod inode_resolve;
mod list_chunks;
mod logical_resolve;
mod min_dev_size;
mod mounted_paths;
mod rootid;
mod subvolid_resolve;
mod tree_stats;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, Volume};

use crate::presentation::console::Console;
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, Opened};

/// Inspect the internal structures of a volume
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct InspectInternal {
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(Debug, clap::Subcommand)]
enum InspectCommand {
    Assemble(assemble::Assemble),
    DumpSuper(dump_super::DumpSuper),
    DumpTree(dump_tree::DumpTree),
    InodeResolve(inode_resolve::InodeResolve),
    ListChunks(list_chunks::ListChunks),
    LogicalResolve(logical_resolve::LogicalResolve),
    MinDevSize(min_dev_size::MinDevSize),
    Rootid(rootid::Rootid),
    SubvolidResolve(subvolid_resolve::SubvolidResolve),
    TreeStats(tree_stats::TreeStats),
}

impl InspectInternal {
    pub(crate) fn knows_json(&self) -> bool {
        !matches!(self.command, InspectCommand::DumpTree(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match &self.command {
            InspectCommand::InodeResolve(command) => Some(command),
            InspectCommand::ListChunks(command) => Some(command),
            InspectCommand::LogicalResolve(command) => Some(command),
            InspectCommand::MinDevSize(command) => Some(command),
            InspectCommand::Rootid(command) => Some(command),
            InspectCommand::SubvolidResolve(command) => Some(command),
            _ => None,
        }
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            InspectCommand::Assemble(command) => command.run(console),
            InspectCommand::DumpSuper(command) => command.run(console),
            InspectCommand::DumpTree(command) => command.run(console),
            InspectCommand::InodeResolve(command) => command.run(console),
            InspectCommand::ListChunks(command) => command.run(console),
            InspectCommand::LogicalResolve(command) => command.run(console),
            InspectCommand::MinDevSize(command) => command.run(console),
            InspectCommand::Rootid(command) => command.run(console),
            InspectCommand::SubvolidResolve(command) => command.run(console),
            InspectCommand::TreeStats(command) => command.run(console),
        }
    }
}

/// Returns the directory that is displayed as "/".
fn root_of(opened: &Opened) -> anyhow::Result<FileId> {
    let root = RootId(opened.files.id());
    Ok(opened.volume.engine().root_dir(root)?)
}

/// Returns the paths of a file below the directory displayed as "/", each with a leading slash. A file
/// outside that directory has paths from the top level, marked `<FS_TREE>`.
fn paths_from(volume: &Volume, root: FileId, file: FileId) -> anyhow::Result<Vec<Vec<u8>>> {
    let (is_below, subvolume) = subvolume_path_from(volume, root, file.root)?;
    let start: &[u8] = if is_below { b"" } else { b"<FS_TREE>" };
    let paths = volume.inode_paths(file)?;
    Ok(paths
        .iter()
        .map(|path| [start, &subvolume, b"/", path].concat())
        .collect())
}

/// Returns whether a subvolume is below the directory displayed as "/", and its path from there with a
/// leading slash. Other subvolumes have their path from the top level.
fn subvolume_path_from(
    volume: &Volume,
    root: FileId,
    subvolume: RootId,
) -> anyhow::Result<(bool, Vec<u8>)> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = subvolume;
    let mut is_below = true;
    while at != root.root {
        let Some(place) = volume.subvolume_place(at)? else {
            is_below = false;
            break;
        };
        let mut path = volume.path_in_subvolume(place.dir)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&place.name);
        names.push(path);
        at = place.dir.root;
        // More levels than a path can have: subvolumes that contain each other.
        anyhow::ensure!(
            names.len() < MAX_NESTING,
            "subvolume {subvolume} is nested in itself"
        );
    }
    let mut joined = Vec::new();
    for name in names.iter().rev() {
        joined.push(b'/');
        joined.extend_from_slice(name);
    }
    Ok((is_below, joined))
}

const MAX_NESTING: usize = 4096;

/// Writes a path within a location's volume in the notation of the commands.
fn write_location(console: &mut Console, location: &Location, path: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    console.write_path(&location.outside(path))?;
    console.out.write_all(b"\n")
}

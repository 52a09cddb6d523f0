//! `ubtrfs inspect-internal inode-resolve`: the paths of an inode.

use anyhow::{Context, bail};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::FileId;

use super::mounted_paths::MountedPaths;
use super::{paths_from, root_of, write_location};
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, VolumeOptions};

/// Show the paths of an inode of the subvolume that the path is in
#[derive(Debug, clap::Args)]
pub(crate) struct InodeResolve {
    /// Inode number
    inode: u64,
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl InodeResolve {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let file = FileId::new(RootId(opened.subvolume_id), InodeNr(self.inode));
        let paths = paths_from(opened.volume.engine(), root_of(&opened)?, file)?;
        must_have_paths(file, &paths)?;
        if console.is_json() {
            let paths = paths.iter().map(|path| json::text(path));
            return Ok(json::write_list(&mut console.out, "inode-resolve", paths)?);
        }
        for path in paths {
            write_location(console, &self.location, &path)?;
        }
        Ok(())
    }
}

impl ByIoctls for InodeResolve {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let mounted = MountedPaths::of(&self.location)?;
        let file = FileId::new(mounted.asked.root_id()?, InodeNr(self.inode));
        let paths = mounted.of_file(file);
        let paths = paths.with_context(|| format!("cannot find inode {}", file.ino))?;
        must_have_paths(file, &paths)?;
        if console.is_json() {
            let paths = paths.iter().map(|path| json::text(path));
            return Ok(json::write_list(&mut console.out, "inode-resolve", paths)?);
        }
        for path in paths {
            mounted.write(console, &path)?;
        }
        Ok(())
    }
}

fn must_have_paths(file: FileId, paths: &[Vec<u8>]) -> anyhow::Result<()> {
    if paths.is_empty() {
        bail!("inode {} of subvolume {} has no path", file.ino, file.root);
    }
    Ok(())
}

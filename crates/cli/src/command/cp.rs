//! `ubtrfs cp`: files copied out of a volume, as cp(1) would from a mount.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit};
use ubtrfs_engine::FileKind;

use crate::console::{COPY_PROGRESS, Console};
use crate::copy::{Copier, CopyOptions, open_directory};
use crate::location::{Location, VolumeOptions};
use crate::quoting::Escaped;

/// Copy files out of a volume
///
/// The last argument is the destination: a directory that exists, in which the copies are made under their
/// own names, or the new name of a single copy. The contents of a volume's root, and of a path that ends in
/// "/.", are copied into the destination itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Cp {
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    sources: Vec<Location>,
    #[arg(required = true, value_name = "DESTINATION")]
    destination: PathBuf,
    /// Copy directories and all below, and keep mode, owner (as root), times, attributes, ACLs, links and
    /// holes
    #[arg(short, long)]
    archive: bool,
    /// Copy directories and all below
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Name each file that is copied
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Cp {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let is_dir = self.destination.is_dir();
        if self.sources.len() > 1 && !is_dir {
            bail!("'{}' is not a directory", shown(&self.destination));
        }
        raise_open_files();
        console.start_progress(COPY_PROGRESS);
        for source in &self.sources {
            if let Err(error) = self.copy(source, is_dir, console) {
                console.error(format_args!("{error:#}"));
            }
        }
        console.end_progress();
        Ok(())
    }

    fn options(&self) -> CopyOptions {
        CopyOptions {
            preserve: self.archive,
            verbose: self.verbose,
        }
    }

    fn copy(&self, source: &Location, into: bool, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(source)?;
        let volume = &*opened.volume;
        // Without -a a link that is named itself stands for what it leads to, as for cp(1).
        let id = match self.archive {
            true => opened.target,
            false => volume.resolve_following(opened.root, &source.path)?,
        };
        let is_dir = volume.attr(id)?.kind == FileKind::Directory;
        if is_dir && !self.archive && !self.recursive {
            bail!("'{source}' is a directory: -r or -a copies it");
        }
        let contents = source.file_name().is_none() || source.path.ends_with(b"/.");
        if is_dir && (contents || !into) {
            if !into {
                make_directory(&self.destination)?;
            }
            let top = open_destination(&self.destination)?;
            let mut copier = Copier::new(volume, top, self.options(), console);
            return Ok(copier.copy_contents(id, &source.path)?);
        }
        let (dir, name) = match into {
            true => (
                self.destination.as_path(),
                source.file_name().unwrap_or(b"."),
            ),
            false => split(&self.destination)?,
        };
        let mut copier = Copier::new(volume, open_destination(dir)?, self.options(), console);
        Ok(copier.copy_as(id, name, &source.path)?)
    }
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

fn make_directory(path: &Path) -> anyhow::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("'{}' is not a directory", shown(path))
        }
        other => other.with_context(|| format!("cannot make directory '{}'", shown(path))),
    }
}

fn open_destination(path: &Path) -> anyhow::Result<std::os::fd::OwnedFd> {
    open_directory(path).with_context(|| format!("cannot open directory '{}'", shown(path)))
}

/// The directory in which a new name is made, and the name.
fn split(path: &Path) -> anyhow::Result<(&Path, &[u8])> {
    let Some(name) = path.file_name().map(OsStr::as_bytes) else {
        bail!("'{}' is not the name of a file", shown(path));
    };
    let dir = path.parent().unwrap_or(Path::new(""));
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    Ok((dir, name))
}

/// A directory is open for each level of the copy: as many as the system allows.
fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // What was allowed before is enough for all but very deep trees.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

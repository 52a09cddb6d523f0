//! `ubtrfs cp`: files copied out of volumes, into them, within one and from one to another, as cp(1) copies.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit};
use ubtrfs_engine::{Error, FileId, FileKind, NewInode, Volume};

use crate::changes::{Changes, Target, is_final};
use crate::console::{COPY_PROGRESS, Console};
use crate::copy::{
    Copier, CopyOptions, FromHost, FromVolume, HostFile, Reflink, Sparse, ToHost, ToVolume,
    open_directory,
};
use crate::file_data::READ_BYTES;
use crate::location::{Location, VolumeOptions};
use crate::operand::Operand;
use crate::permissions::umask;
use crate::place;
use crate::quoting::Escaped;

/// Copy files out of a volume, into one, or within
///
/// The last argument is the destination: a directory that exists, in which the copies are made under their own
/// names, or the new name of a single copy. The contents of a volume's root, and of a path that ends in "/.", are
/// copied into the destination itself. If the destination is IMAGE:/PATH, sources without ":/" are files of this
/// machine, and - is standard input; otherwise all sources are in volumes.
///
/// In a volume copies belong to root, unless -a keeps the owner. A file that exists is overwritten, and keeps owner
/// and mode; with -a it is replaced.
#[derive(Debug, clap::Args)]
pub(crate) struct Cp {
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<Operand>,
    #[arg(required = true, value_name = "DESTINATION")]
    destination: Operand,
    /// Copy directories and all below, and keep mode, owner (outside volumes: as root), times, attributes, ACLs,
    /// links and holes
    #[arg(short, long)]
    archive: bool,
    /// Copy directories and all below
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Share data instead of copying it, within a volume
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always", default_value = "auto")]
    reflink: Reflink,
    /// Make holes of zeros (always), or zeros of holes (never)
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always", default_value = "auto")]
    sparse: Sparse,
    /// Name each file that is copied
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Cp {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        raise_open_files();
        console.start_progress(COPY_PROGRESS);
        match &self.destination {
            Operand::Host { path, .. } => self.to_host(path, console)?,
            Operand::Volume(location) => self.to_volume(location, console)?,
        }
        console.end_progress();
        Ok(())
    }

    fn options(&self, console: &Console) -> CopyOptions {
        CopyOptions {
            preserve: self.archive,
            reflink: self.reflink,
            sparse: self.sparse,
            verbose: self.verbose || console.verbose > 0,
        }
    }

    /// Without -a a link that is named itself stands for what it leads to, as for cp(1).
    fn follows(&self) -> bool {
        !self.archive
    }

    fn check_dir(&self, is_dir: bool, source: &dyn std::fmt::Display) -> anyhow::Result<()> {
        if is_dir && !self.archive && !self.recursive {
            bail!("'{source}' is a directory: -r or -a copies it");
        }
        Ok(())
    }

    /// The file that a source in a volume names.
    fn find(
        &self,
        volume: &Volume,
        root: FileId,
        source: &Location,
    ) -> anyhow::Result<(FileId, bool)> {
        let found = match self.follows() {
            true => volume.resolve_following(root, &source.path),
            false => volume.resolve(root, &source.path),
        };
        let id = found.with_context(|| format!("cannot access '{source}'"))?;
        let is_dir = volume.attr(id)?.kind == FileKind::Directory;
        self.check_dir(is_dir, source)?;
        Ok((id, is_dir))
    }

    fn to_host(&self, destination: &Path, console: &mut Console) -> anyhow::Result<()> {
        let into = destination.is_dir();
        if self.sources.len() > 1 && !into {
            bail!("'{}' is not a directory", shown(destination));
        }
        for source in &self.sources {
            let copied = source
                .in_volume()
                .with_context(|| format!("neither '{source}' nor the destination is in a volume"))
                .and_then(|source| self.one_to_host(&source, destination, into, console));
            if let Err(error) = copied {
                console.error(format_args!("{error:#}"));
            }
        }
        Ok(())
    }

    fn one_to_host(
        &self,
        source: &Location,
        destination: &Path,
        into: bool,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let opened = self.volume.open_beside(source, None)?;
        let (id, is_dir) = self.find(&opened.0, opened.1, source)?;
        let from = FromVolume { volume: &opened.0 };
        let contents = source.file_name().is_none() || source.path.ends_with(b"/.");
        let to = ToHost::new(self.archive);
        let mut copier = Copier::new(&from, to, self.options(console), console);
        if is_dir && (contents || !into) {
            if !into {
                make_directory(destination)?;
            }
            let top = open_destination(destination)?;
            return Ok(copier.copy_contents(&id, top, &source.path)?);
        }
        let (dir, name) = match into {
            true => (destination, source.file_name().unwrap_or(b".")),
            false => split(destination)?,
        };
        Ok(copier.copy_as(&id, open_destination(dir)?, name, &source.path)?)
    }

    fn to_volume(&self, destination: &Location, console: &mut Console) -> anyhow::Result<()> {
        let is_image = |source: &&Operand| matches!(source, Operand::Volume(_));
        let options = match self.sources.iter().any(|source| is_image(&source)) {
            true => self.volume.of_several(),
            false => self.volume.clone(),
        };
        let mut changes = Changes::new(&options);
        let target = changes.open(destination)?;
        let into = target.directory(&destination.path)?;
        if self.sources.len() > 1 && into.is_none() {
            bail!("'{destination}' is not a directory");
        }
        let goal = Goal {
            target: &target,
            destination,
            into,
        };
        for source in &self.sources {
            let copied = match source {
                input if input.is_standard_input() => goal.write_input(),
                Operand::Host { path, .. } => self.host_to_volume(path, &goal, console),
                Operand::Volume(source) => self.between(source, &changes, &goal, console),
            };
            if let Err(error) = copied {
                console.error(format_args!("{error:#}"));
                if is_final(&error) {
                    break;
                }
            }
        }
        changes.commit()
    }

    fn host_to_volume(
        &self,
        source: &Path,
        goal: &Goal<'_>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let refused = || format!("cannot access '{}'", shown(source));
        let file = HostFile::open(source, self.follows()).with_context(refused)?;
        self.check_dir(file.is_dir(), &shown(source))?;
        let from = FromHost {
            images: images_of(&goal.target.volume),
        };
        let bytes = source.as_os_str().as_bytes();
        let name = place::split(bytes).map(|(_, name)| name);
        let to = ToVolume::new(&goal.target.volume, self.archive);
        let mut copier = Copier::new(&from, to, self.options(console), console);
        match goal.place(file.is_dir(), name)? {
            Goes::Contents(dir) => copier.copy_contents(&file, dir, bytes)?,
            Goes::As(dir, name) => copier.copy_as(&file, dir, &name, bytes)?,
        }
        Ok(())
    }

    fn between(
        &self,
        source: &Location,
        changes: &Changes<'_>,
        goal: &Goal<'_>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let open = changes.opened(source);
        let (volume, root) = &self.volume.of_several().open_beside(source, open)?;
        let (id, is_dir) = self.find(volume, *root, source)?;
        let name = place::split(&source.path).map(|(_, name)| name);
        let is_same_volume = std::ptr::eq(&**volume, &*goal.target.volume);
        if is_dir && is_same_volume {
            goal.refuse_below(id, source)?;
        }
        let goes = goal.place(is_dir, name)?;
        let from = FromVolume { volume };
        let to = ToVolume::new(&goal.target.volume, self.archive);
        let mut copier = Copier::new(&from, to, self.options(console), console);
        match goes {
            Goes::Contents(dir) => copier.copy_contents(&id, dir, &source.path)?,
            Goes::As(dir, name) => copier.copy_as(&id, dir, &name, &source.path)?,
        }
        Ok(())
    }
}

/// Where in a volume copies go.
struct Goal<'a> {
    target: &'a Target,
    destination: &'a Location,
    /// The destination, if it is a directory.
    into: Option<FileId>,
}

enum Goes {
    /// What is in the source goes into this directory.
    Contents(FileId),
    As(FileId, Vec<u8>),
}

impl Goal<'_> {
    /// `name` is the source's own; None asks for its contents.
    fn place(&self, is_dir: bool, name: Option<&[u8]>) -> anyhow::Result<Goes> {
        match (self.into, name) {
            (Some(dir), None) if is_dir => Ok(Goes::Contents(dir)),
            (Some(dir), Some(name)) => Ok(Goes::As(dir, name.to_vec())),
            _ => {
                let place = self.target.place(self.destination)?;
                Ok(Goes::As(place.dir, place.name))
            }
        }
    }

    /// Refuses to copy a directory into itself or what is in it.
    fn refuse_below(&self, dir: FileId, source: &Location) -> anyhow::Result<()> {
        let mut at = match self.into {
            Some(dir) => dir,
            None => self.target.place(self.destination)?.dir,
        };
        let volume = &self.target.volume;
        loop {
            if at == dir {
                bail!("cannot copy '{source}' into itself: '{}'", self.destination);
            }
            let parent = volume.parent(at)?;
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
    }

    /// Writes what standard input gives, over the contents of a file that exists.
    fn write_input(&self) -> anyhow::Result<()> {
        let refused = || format!("cannot write '{}'", self.destination);
        if self.destination.session().is_some() {
            bail!("standard input is the shell's own");
        }
        let volume = &self.target.volume;
        let found = volume.resolve_following(self.target.root, &self.destination.path);
        let file = match found {
            Err(Error::NotFound) => {
                let place = self.target.place(self.destination)?;
                let new = NewInode {
                    umask: umask(),
                    ..NewInode::file(0o666)
                };
                volume
                    .create(place.dir, &place.name, &new)
                    .with_context(refused)?
            }
            found => {
                let file = found.with_context(refused)?;
                volume.truncate(file, 0).with_context(refused)?;
                file
            }
        };
        let mut input = File::from(rustix::io::dup(io::stdin())?);
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        loop {
            let len = fill(&mut input, &mut buffer).context("cannot read standard input")?;
            volume
                .write(file, at, &buffer[..len])
                .with_context(refused)?;
            at += len as u64;
            if len < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Device and number of the files that a volume is in.
fn images_of(volume: &Volume) -> Vec<(u64, u64)> {
    let devices = volume.pool().devices();
    let paths = devices.iter().filter_map(|device| device.path.as_deref());
    let metadata = paths.filter_map(|path| path.metadata().ok());
    metadata.map(|file| (file.dev(), file.ino())).collect()
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

fn open_destination(path: &Path) -> anyhow::Result<OwnedFd> {
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

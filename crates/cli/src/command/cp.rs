//! `ubtrfs cp`: files copied out of volumes, into them, within one and from one to another, as cp(1) copies.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::process::{Resource, Rlimit};
use ubtrfs::transfer::copy::{
    Copier, CopyError, CopyOptions, FromHost, FromVolume, HostFile, Made, Reflink, Sparse, ToHost,
    ToVolume, Top, open_directory,
};
use ubtrfs_engine::{Error, FileId, FileKind, LastName, NewInode, Volume};

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::permissions::umask;
use crate::presentation::quoting::Escaped;
use crate::presentation::transfer_console::TransferConsole;
use crate::volume_access::changes::{Changes, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::operand::Operand;
use crate::volume_access::place;

/// Bytes of standard input that are written at a time.
const INPUT_BYTES: usize = 1 << 20;

/// Copy files out of a volume, into one, or within
///
/// The last argument is the destination. It is a directory that exists, in which the copies are made under their own
/// names, or the new name of a single copy. The contents of a volume's root, and of a path that ends in "/.", are
/// copied into the destination itself. If the destination is IMAGE:/PATH, sources without ":/" are files of this
/// machine, and - is standard input. Otherwise all sources are in volumes, and the destination - is standard output
/// (./- is a file of that name).
///
/// In a volume copies belong to root, unless -a keeps the owner. A file that exists is overwritten, and keeps owner
/// and mode; with -a it is replaced. A file is copied through a link that the destination names, but not where the link
/// leads nowhere. Below directories that are copied, links are replaced.
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
    reflink: WhenReflinked,
    /// Make holes of zeros (always), or zeros of holes (never)
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "always", default_value = "auto")]
    sparse: WhenSparse,
    /// Name each file that is copied
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// Whether data is shared instead of copied.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhenReflinked {
    /// Where it can be
    Auto,
    /// Or the copy fails
    Always,
    Never,
}

impl From<WhenReflinked> for Reflink {
    fn from(when: WhenReflinked) -> Reflink {
        match when {
            WhenReflinked::Auto => Reflink::Auto,
            WhenReflinked::Always => Reflink::Always,
            WhenReflinked::Never => Reflink::Never,
        }
    }
}

/// Treatment of holes, and of zeros.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhenSparse {
    /// Holes stay holes
    Auto,
    /// Blocks of zeros become holes as well
    Always,
    /// Holes become zeros
    Never,
}

impl From<WhenSparse> for Sparse {
    fn from(when: WhenSparse) -> Sparse {
        match when {
            WhenSparse::Auto => Sparse::Auto,
            WhenSparse::Always => Sparse::Always,
            WhenSparse::Never => Sparse::Never,
        }
    }
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

    fn options(&self) -> CopyOptions {
        CopyOptions {
            preserve: self.archive,
            reflink: self.reflink.into(),
            sparse: self.sparse.into(),
        }
    }

    fn observer<'a>(&self, console: &'a mut Console) -> TransferConsole<'a> {
        let verbose = self.verbose || console.verbose > 0;
        TransferConsole { console, verbose }
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
    ) -> anyhow::Result<(FileId, FileKind)> {
        let found = match self.follows() {
            true => volume.resolve_following(root, &source.path),
            false => volume.resolve(root, &source.path),
        };
        let id = found.with_context(|| format!("cannot access '{source}'"))?;
        let kind = volume.attr(id)?.kind;
        self.check_dir(kind == FileKind::Directory, source)?;
        Ok((id, kind))
    }

    fn to_host(&self, destination: &Path, console: &mut Console) -> anyhow::Result<()> {
        let is_output = self.destination.is_standard_stream();
        let into = !is_output && destination.is_dir();
        if self.sources.len() > 1 && !into {
            bail!("'{}' is not a directory", shown(destination));
        }
        for source in &self.sources {
            let copied = source
                .in_volume()
                .with_context(|| format!("neither '{source}' nor the destination is in a volume"))
                .and_then(|source| self.one_to_host(&source, destination, into, console));
            if let Err(error) = copied {
                console.failed(&error);
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
        let (volume, root) = &self.volume.open_beside(source, None)?;
        let (id, kind) = self.find(volume.engine(), *root, source)?;
        let from = FromVolume {
            volume: volume.engine(),
        };
        let images = images_of(volume);
        let made = self.open_named(kind, destination, into, &images, console)?;
        let contents = source.file_name().is_none() || source.path.ends_with(b"/.");
        let to = ToHost::new(self.archive, images);
        let mut observer = self.observer(console);
        let mut copier = Copier::new(&from, to, self.options(), &mut observer);
        if let Some(made) = made {
            return Ok(copier.copy_into(&id, &made, &source.path)?);
        }
        let top = |path: &Path| {
            let shown = path.as_os_str().as_bytes().to_vec();
            open_destination(path).map(|dir| Top { dir, shown })
        };
        if kind == FileKind::Directory && (contents || !into) {
            if !into {
                make_directory(destination)?;
            }
            return Ok(copier.copy_contents(&id, top(destination)?, &source.path)?);
        }
        let (dir, name) = match into {
            true => (destination, source.file_name().unwrap_or(b".")),
            false => split(destination)?,
        };
        Ok(copier.copy_as(&id, top(dir)?, name, &source.path)?)
    }

    /// Opens what the destination names to be overwritten, links followed: standard output, or something that exists and
    /// is neither replaced nor copied into.
    fn open_named(
        &self,
        kind: FileKind,
        destination: &Path,
        into: bool,
        images: &[(u64, u64)],
        console: &mut Console,
    ) -> anyhow::Result<Option<Made>> {
        if self.destination.is_standard_stream() {
            if kind != FileKind::Regular {
                bail!("only a file can be copied to standard output");
            }
            console.out.flush()?;
            let output = File::from(rustix::io::dup(io::stdout())?);
            return Ok(Some(Made::of_open(output)?));
        }
        let is_there = destination.symlink_metadata().is_ok();
        if into || self.archive || kind != FileKind::Regular || !is_there {
            return Ok(None);
        }
        let shown = shown(destination);
        match destination.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("not writing through dangling symlink '{shown}'")
            }
            Ok(existing) if images.contains(&(existing.dev(), existing.ino())) => {
                bail!("cannot write '{shown}': it is the image that is read")
            }
            _ => {}
        }
        let mut options = File::options();
        let opened = options.write(true).truncate(true).open(destination);
        let made = opened.and_then(Made::of_open);
        Ok(Some(
            made.with_context(|| format!("cannot write '{shown}'"))?,
        ))
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
                input if input.is_standard_stream() => goal.write_input(),
                Operand::Host { path, .. } => self.host_to_volume(path, &goal, console),
                Operand::Volume(source) => self.between(source, &changes, &goal, console),
            };
            if let Err(error) = copied {
                console.failed(&error);
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
        let to = ToVolume::new(goal.target.engine(), self.archive, umask());
        let mut observer = self.observer(console);
        let mut copier = Copier::new(&from, to, self.options(), &mut observer);
        match goal.place(file.kind()?, name)? {
            Goes::Contents(top) => copier.copy_contents(&file, top, bytes)?,
            Goes::As(top, name) => copier.copy_as(&file, top, &name, bytes)?,
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
        let is_same_volume = volume.is_same(&goal.target.volume);
        let volume = volume.engine();
        let (id, kind) = self.find(volume, *root, source)?;
        let name = place::split(&source.path).map(|(_, name)| name);
        if kind == FileKind::Directory && is_same_volume {
            goal.refuse_below(id, source)?;
        }
        let goes = goal.place(kind, name)?;
        if let Goes::As(top, name) = &goes
            && is_same_volume
            && volume.lookup(top.dir, name)? == Some(id)
        {
            return Err(CopyError::SameFile).with_context(|| format!("cannot copy '{source}'"));
        }
        let from = FromVolume { volume };
        let to = ToVolume::new(goal.target.engine(), self.archive, umask());
        let mut observer = self.observer(console);
        let mut copier = Copier::new(&from, to, self.options(), &mut observer);
        match goes {
            Goes::Contents(top) => copier.copy_contents(&id, top, &source.path)?,
            Goes::As(top, name) => copier.copy_as(&id, top, &name, &source.path)?,
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
    /// The entries of the source go into this directory.
    Contents(Top<FileId>),
    As(Top<FileId>, Vec<u8>),
}

impl Goal<'_> {
    /// `kind` and `name` are the source's own; no name asks for its contents.
    fn place(&self, kind: FileKind, name: Option<&[u8]>) -> anyhow::Result<Goes> {
        let destination = self.destination;
        let shown = destination.to_outside();
        if let Some(dir) = self.into {
            let top = Top { dir, shown };
            return match name {
                None if kind == FileKind::Directory => Ok(Goes::Contents(top)),
                Some(name) => {
                    let path = [&destination.path, &b"/"[..], name].concat();
                    let (dir, name) = self.through_link(kind, &path, (dir, name))?;
                    Ok(Goes::As(Top { dir, ..top }, name))
                }
                None => self.as_named(kind),
            };
        }
        self.as_named(kind)
    }

    /// The name that the destination is.
    fn as_named(&self, kind: FileKind) -> anyhow::Result<Goes> {
        let destination = self.destination;
        if kind != FileKind::Directory && destination.path.ends_with(b"/") {
            bail!("'{destination}' is not a directory");
        }
        let place = self.target.place(destination)?;
        let (dir, name) = self.through_link(kind, &destination.path, (place.dir, &place.name))?;
        let above = place::split(&destination.path).map_or(&b"/"[..], |(above, _)| above);
        let shown = destination.outside(above);
        Ok(Goes::As(Top { dir, shown }, name))
    }

    /// Where a copy goes that the last name of `path` is for: for a regular file, where a link of this name leads.
    fn through_link(
        &self,
        kind: FileKind,
        path: &[u8],
        (dir, name): (FileId, &[u8]),
    ) -> anyhow::Result<(FileId, Vec<u8>)> {
        let volume = self.target.engine();
        let refused = || format!("cannot write '{}'", self.destination);
        let is_link = match volume.lookup(dir, name).with_context(refused)? {
            Some(existing) => volume.attr(existing)?.kind == FileKind::Symlink,
            None => false,
        };
        if kind != FileKind::Regular || !is_link {
            return Ok((dir, name.to_vec()));
        }
        let end = volume.resolve_end(self.target.root, path, true);
        let end = end.with_context(refused)?;
        match (end.id, end.last) {
            (Some(_), LastName::Name(name)) => Ok((end.dir, name)),
            _ => bail!(
                "not writing through dangling symlink '{}'",
                Escaped(&self.destination.outside(path))
            ),
        }
    }

    /// Refuses to copy a directory into itself or what is in it.
    fn refuse_below(&self, dir: FileId, source: &Location) -> anyhow::Result<()> {
        let mut at = match self.into {
            Some(dir) => dir,
            None => self.target.place(self.destination)?.dir,
        };
        let volume = self.target.engine();
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
        let volume = self.target.engine();
        let mut input = File::from(rustix::io::dup(io::stdin())?);
        let source = input.metadata()?;
        if images_of(&self.target.volume).contains(&(source.dev(), source.ino())) {
            return Err(CopyError::Image).with_context(refused);
        }
        let found = volume.resolve_following(self.target.root, &self.destination.path);
        let file = match found {
            Err(Error::NotFound) => {
                let place = self.target.place(self.destination)?;
                let path = &self.destination.path;
                self.through_link(FileKind::Regular, path, (place.dir, &place.name))?;
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
        let mut buffer = vec![0; INPUT_BYTES];
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
fn images_of(volume: &ubtrfs::Volume) -> Vec<(u64, u64)> {
    let devices = volume.devices();
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

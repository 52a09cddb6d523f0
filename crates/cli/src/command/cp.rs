//! `ubtrfs cp`: copies files out of volumes, into them, within and between them, like cp(1).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use ubtrfs::{CopyOptions, FileKind, Metadata, OpenOptions, Reflink, Sparse, Subvolume, Volume};
use ubtrfs_format::limits;

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::permissions::umask;
use crate::presentation::quoting::Escaped;
use crate::presentation::transfer_console::{TransferConsole, TreeWork};
use crate::volume_access::changes::{Changes, NEW_FILE_MODE, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::operand::Operand;
use crate::volume_access::place;
use crate::volume_access::reason::{Reason, Reasoned};
use crate::volume_access::stream_output;

/// Bytes of standard input per write.
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
    /// Files and directories to copy: IMAGE:/PATH, or paths of this machine
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<Operand>,
    /// Directory or new name: IMAGE:/PATH, or a path of this machine
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
    /// With -a, fail at attributes that the destination cannot have instead of leaving them out
    #[arg(long)]
    strict_attributes: bool,
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
        CopyOptions::new()
            .preserve(self.archive)
            .follow(self.follows())
            .strict_attributes(self.strict_attributes)
            .reflink(self.reflink.into())
            .sparse(self.sparse.into())
            .umask(umask())
    }

    fn observer<'a>(&self, console: &'a mut Console) -> TransferConsole<'a> {
        let verbose = self.verbose || console.verbose > 0;
        TransferConsole {
            console,
            verbose,
            work: TreeWork::Copy,
        }
    }

    /// Returns whether a link given as a source is followed: as in cp(1), unless -a is given.
    fn follows(&self) -> bool {
        !self.archive
    }

    fn check_dir(&self, is_dir: bool, source: &dyn std::fmt::Display) -> anyhow::Result<()> {
        if is_dir && !self.archive && !self.recursive {
            bail!("'{source}' is a directory: -r or -a copies it");
        }
        Ok(())
    }

    /// Looks up the file of a source in a volume.
    fn find(&self, files: &Subvolume, source: &Location) -> anyhow::Result<Metadata> {
        let path = source.path_within();
        let found = if self.follows() {
            files.metadata(path)
        } else {
            files.symlink_metadata(path)
        };
        let refused = || format!("cannot access '{source}'");
        let file = found.reason().with_context(refused)?;
        self.check_dir(file.is_dir(), source)?;
        if file.is_file() {
            // Check this before the destination is truncated.
            let checked = limits::check_file_size(file.len());
            checked.map_err(|limit| anyhow!("cannot copy '{source}': it claims {limit}"))?;
        }
        Ok(file)
    }

    fn to_host(&self, destination: &Path, console: &mut Console) -> anyhow::Result<()> {
        let is_output = self.destination.is_standard_stream();
        let into = !is_output && destination.is_dir();
        if self.sources.len() > 1 && !into {
            bail!("'{}' is not a directory", shown(destination));
        }
        if !is_output && self.sources.iter().all(|source| !source.is_in_volume()) {
            // Probably a path in that volume was meant.
            stream_output::refuse_volume_at(destination)?;
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
        let (volume, files) = self.volume.open_beside(source, None)?;
        let file = self.find(&files, source)?;
        let path = source.path_within();
        let options = self.options();
        let opened = self.open_named(file.file_type(), destination, into, &volume, console)?;
        if let Some(opened) = opened {
            let mut observer = self.observer(console);
            let copied = files.copy_to_file(path, opened, &options, &mut observer);
            return Ok(copied.reason()?);
        }
        let contents = source.file_name().is_none() || source.path.ends_with(b"/.");
        let contents = file.is_dir() && (contents || !into);
        let to = if into && !contents {
            destination.join(OsStr::from_bytes(source.file_name().unwrap_or(b".")))
        } else {
            destination.to_owned()
        };
        if contents {
            if !into {
                mkdir(&to)?;
            }
            check_directory(&to)?;
        } else {
            check_directory(directory_of(&to)?)?;
        }
        let options = options.contents(contents);
        let mut observer = self.observer(console);
        let copied = files.copy_to_host(path, &to, &options, &mut observer);
        Ok(copied.reason()?)
    }

    /// Opens the named destination for overwriting, following links: standard output, or an existing file
    /// that is neither replaced nor a directory to copy into.
    fn open_named(
        &self,
        kind: FileKind,
        destination: &Path,
        into: bool,
        volume: &Volume,
        console: &mut Console,
    ) -> anyhow::Result<Option<File>> {
        if self.destination.is_standard_stream() {
            if !kind.is_file() {
                bail!("only a file can be copied to standard output");
            }
            console.out.flush()?;
            return Ok(Some(File::from(rustix::io::dup(io::stdout())?)));
        }
        let is_there = destination.symlink_metadata().is_ok();
        if into || self.archive || !kind.is_file() || !is_there {
            return Ok(None);
        }
        let shown = shown(destination);
        match destination.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("not writing through dangling symlink '{shown}'")
            }
            Ok(existing) if volume.lies_on(&existing) => {
                bail!("cannot write '{shown}': it is the image that is read")
            }
            _ => {}
        }
        Ok(Some(stream_output::overwrite(destination)?))
    }

    fn to_volume(&self, destination: &Location, console: &mut Console) -> anyhow::Result<()> {
        let is_image = |source: &&Operand| matches!(source, Operand::Volume(_));
        let options = if self.sources.iter().any(|source| is_image(&source)) {
            self.volume.of_several()
        } else {
            self.volume.clone()
        };
        let mut changes = Changes::new(&options);
        let target = changes.open(destination)?;
        let into = target.is_directory(destination)?;
        if self.sources.len() > 1 && !into {
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
        let found = if self.follows() {
            source.metadata()
        } else {
            source.symlink_metadata()
        };
        let found = found.context("cannot open").with_context(refused)?;
        self.check_dir(found.is_dir(), &shown(source))?;
        let name = place::split(source.as_os_str().as_bytes()).map(|(_, name)| name);
        let goes = goal.place(found.is_dir(), found.is_file(), name)?;
        let mut observer = self.observer(console);
        let options = goes.options(self.options());
        let files = &goal.target.files;
        let copied = files.copy_from_host(source, &goes.path, &options, &mut observer);
        Ok(copied.reason()?)
    }

    fn between(
        &self,
        source: &Location,
        changes: &Changes<'_>,
        goal: &Goal<'_>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let open = changes.opened(source);
        let (_, files) = self.volume.of_several().open_beside(source, open)?;
        let file = self.find(&files, source)?;
        let name = place::split(&source.path).map(|(_, name)| name);
        let goes = goal.place(file.is_dir(), file.is_file(), name)?;
        let mut observer = self.observer(console);
        let options = goes.options(self.options());
        let (from, to) = (source.path_within(), &goes.path);
        let copied = files.copy_tree(from, &goal.target.files, to, &options, &mut observer);
        copied.reason().map_err(|error| match error.errno() {
            // Usually a copy onto or into itself, for which the library's error has no path.
            Errno::INVAL => anyhow::Error::from(error).context(format!("cannot copy '{source}'")),
            _ => error.into(),
        })
    }
}

/// The destination of copies in a volume.
struct Goal<'a> {
    target: &'a Target,
    destination: &'a Location,
    /// Whether the destination is a directory.
    into: bool,
}

/// The destination of one copy.
struct Goes {
    path: PathBuf,
    /// The path for messages.
    shown: Vec<u8>,
    /// Whether the contents of the source go into the directory.
    contents: bool,
}

impl Goes {
    fn options(&self, options: CopyOptions) -> CopyOptions {
        options
            .contents(self.contents)
            .shown_as(OsStr::from_bytes(&self.shown))
    }
}

impl Goal<'_> {
    /// Returns the destination of a source. `name` is the name of the source. Without a name, its contents
    /// are copied.
    fn place(&self, is_dir: bool, is_file: bool, name: Option<&[u8]>) -> anyhow::Result<Goes> {
        let destination = self.destination;
        let (path, shown) = match name.map(OsStr::from_bytes) {
            Some(name) if self.into => {
                let shown = PathBuf::from(OsString::from_vec(destination.to_outside()));
                (destination.path_within().join(name), shown.join(name))
            }
            None if self.into && is_dir => {
                return Ok(Goes {
                    path: destination.path_within().to_owned(),
                    shown: destination.to_outside(),
                    contents: true,
                });
            }
            _ if !is_dir && destination.path.ends_with(b"/") => {
                bail!("'{destination}' is not a directory")
            }
            _ => {
                let shown = OsString::from_vec(destination.to_outside());
                (self.target.named(destination)?.path, shown.into())
            }
        };
        Ok(Goes {
            path: if is_file {
                self.through_link(path)?
            } else {
                path
            },
            shown: shown.into_os_string().into_vec(),
            contents: false,
        })
    }

    /// Returns the path for a regular file: the target, if a link has this name.
    fn through_link(&self, path: PathBuf) -> anyhow::Result<PathBuf> {
        let files = &self.target.files;
        let refused = || format!("cannot write '{}'", self.destination);
        let is_link = match files.symlink_metadata(&path).reason() {
            Err(error) if error.is_missing() => false,
            found => found.with_context(refused)?.is_symlink(),
        };
        if !is_link {
            return Ok(path);
        }
        match files.canonicalize(&path).reason() {
            Ok(end) if end.file_name().is_some() => Ok(end),
            Err(error) if !error.is_missing() => Err(error).with_context(refused),
            _ => {
                let path = self.destination.outside(path.as_os_str().as_bytes());
                bail!("not writing through dangling symlink '{}'", Escaped(&path))
            }
        }
    }

    /// Writes standard input, over the contents of an existing file.
    fn write_input(&self) -> anyhow::Result<()> {
        let refused = || format!("cannot write '{}'", self.destination);
        if self.destination.session().is_some() {
            bail!("standard input is the shell's own");
        }
        let mut input = File::from(rustix::io::dup(io::stdin())?);
        let source = input.metadata()?;
        if self.target.volume.lies_on(&source) {
            return Err(anyhow!("it is the image that is written")).with_context(refused);
        }
        let files = &self.target.files;
        let path = self.destination.path_within();
        let path = match files.metadata(path).reason() {
            Err(error) if error.is_missing() => {
                self.through_link(self.target.named(self.destination)?.path)?
            }
            found => {
                found.with_context(refused)?;
                path.to_owned()
            }
        };
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let options = options.mode(NEW_FILE_MODE).umask(umask());
        let mut file = files
            .open_with(path, &options)
            .reason()
            .with_context(refused)?;
        let mut buffer = vec![0; INPUT_BYTES];
        loop {
            let len = fill(&mut input, &mut buffer).context("cannot read standard input")?;
            let written = file.write_all(&buffer[..len]).map_err(Reason::of_io);
            written.with_context(refused)?;
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

fn shown(path: &Path) -> Escaped<'_> {
    Escaped::of(path)
}

fn mkdir(path: &Path) -> anyhow::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("'{}' is not a directory", shown(path))
        }
        other => other.with_context(|| format!("cannot make directory '{}'", shown(path))),
    }
}

/// Returns the error of a directory that cannot be copied into.
fn check_directory(path: &Path) -> anyhow::Result<()> {
    let opened = std::fs::read_dir(path).map(|_| ());
    opened.with_context(|| format!("cannot open directory '{}'", shown(path)))
}

/// Returns the directory for a new name.
fn directory_of(path: &Path) -> anyhow::Result<&Path> {
    if path.file_name().is_none() {
        bail!("'{}' is not the name of a file", shown(path));
    }
    let dir = path.parent().unwrap_or(Path::new(""));
    Ok(if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    })
}

/// Raises the limit of open files to the system's maximum, as each level of a copy has an open directory.
fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // The old limit suffices except for very deep trees.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

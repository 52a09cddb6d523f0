//! The options that fill a new volume, named as in mkfs.btrfs.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use ubtrfs::{Access, Compress, Compression, FilledContents, Growth, Mkfs, OptionKind};

use super::target::Target;
use crate::command::chown::Ownership;
use crate::presentation::console::Console;
use crate::presentation::units::Units;

/// Reads the archive from standard input.
const STDIN: &str = "-";

#[derive(Debug, clap::Args)]
pub(super) struct RootdirArgs {
    /// Fill the volume with the files of a directory or a tar archive; "-" reads one from standard input
    ///
    /// An archive may be compressed by gzip, zstd, xz or bzip2. With SOURCE_DATE_EPOCH in the environment, the same
    /// files and options make the same volume, byte for byte. Without -U its UUIDs follow from these as well. Two such
    /// volumes cannot be mounted at the same time.
    #[arg(short, long, value_name = "DIR|TAR|-", help_heading = "Creation")]
    rootdir: Option<PathBuf>,
    #[arg(
        long,
        value_name = "ALGO[:LEVEL]",
        help = format!("Compress files: {}", OptionKind::Compression.syntax()),
        help_heading = "Creation"
    )]
    compress: Option<String>,
    /// Make SUBDIR a subvolume; TYPE is rw (default), ro, default or default-ro
    #[arg(
        short = 'u',
        long = "subvol",
        value_name = "[TYPE:]SUBDIR",
        help_heading = "Creation"
    )]
    subvolumes: Vec<PathBuf>,
    /// Set flags of PATH and what is below: nodatacow, nodatasum
    #[arg(long, value_name = "FLAGS:PATH", help_heading = "Creation")]
    inode_flags: Vec<PathBuf>,
    /// Write out the holes of PATH and of what is below; always done below /boot, as GRUB cannot read holes
    #[arg(long, value_name = "PATH", help_heading = "Creation")]
    dense: Vec<PathBuf>,
    /// Give all files to this user and group, by names or numbers, in place of their own
    #[arg(long, value_name = "USER[:GROUP]", help_heading = "Creation")]
    owner: Option<Ownership>,
    /// Give all files to root, as --owner 0:0
    #[arg(long, overrides_with = "owner", help_heading = "Creation")]
    all_root: bool,
    /// Share blocks with the directory's files instead of copying, where the file system can
    #[arg(long, help_heading = "Creation")]
    reflink: bool,
    /// (with --rootdir) shrink the filled filesystem to minimal size
    #[arg(long, help_heading = "Creation")]
    shrink: bool,
}

/// The folder or archive that fills a new volume.
pub(super) struct Rootdir<'a> {
    args: &'a RootdirArgs,
    /// The path for messages.
    path: PathBuf,
    /// None for an archive.
    is_folder: bool,
    compress: Compress,
    subvolumes: Vec<SubvolumeRequest>,
    flags: Vec<FlagsRequest>,
}

/// A directory to turn into a subvolume.
#[derive(Clone)]
struct SubvolumeRequest {
    /// Below the root.
    path: PathBuf,
    access: Access,
    /// Whether it is the default subvolume.
    is_default: bool,
}

/// Flags for a file, or for everything in a directory.
#[derive(Clone)]
struct FlagsRequest {
    /// Below the root.
    path: PathBuf,
    /// Overwritten in place; otherwise only without checksums.
    no_data_cow: bool,
}

impl RootdirArgs {
    /// Checks the options. Returns None if the volume is to be empty.
    pub(super) fn resolve(&self) -> anyhow::Result<Option<Rootdir<'_>>> {
        let Some(rootdir) = &self.rootdir else {
            for (given, error) in [
                (
                    self.shrink,
                    "the option --shrink must be used with --rootdir",
                ),
                (
                    !self.subvolumes.is_empty(),
                    "option --subvol must be used with --rootdir",
                ),
                (
                    !self.inode_flags.is_empty(),
                    "option --inode-flags must be used with --rootdir",
                ),
                (
                    self.compress.is_some(),
                    "--compression must be used with --rootdir",
                ),
                (self.reflink, "--reflink must be used with --rootdir"),
                (
                    !self.dense.is_empty(),
                    "option --dense must be used with --rootdir",
                ),
                (
                    self.owner.is_some(),
                    "option --owner must be used with --rootdir",
                ),
                (
                    self.all_root,
                    "option --all-root must be used with --rootdir",
                ),
            ] {
                if given {
                    bail!(error);
                }
            }
            return Ok(None);
        };
        let mut resolved = Rootdir {
            args: self,
            path: rootdir.clone(),
            is_folder: false,
            compress: self
                .compress
                .as_deref()
                .map_or(Ok(Compress::default()), str::parse)?,
            subvolumes: Vec::new(),
            flags: Vec::new(),
        };
        if rootdir.as_os_str() != STDIN {
            resolved.path = rootdir.canonicalize().with_context(|| {
                format!("could not get canonical path to {}", rootdir.display())
            })?;
            resolved.is_folder = resolved.path.is_dir();
        }
        if self.reflink && !resolved.is_folder {
            bail!(
                "--reflink needs a directory, and {} is not one",
                rootdir.display()
            );
        }
        resolved.requests()?;
        Ok(Some(resolved))
    }

    /// Returns the owner of all files, or None if they keep their own. A user without a group gets the group
    /// with the same number.
    fn owner(&self) -> Option<(u32, u32)> {
        match self.owner {
            Some(Ownership { uid, gid }) => {
                let uid = uid.unwrap_or(0);
                Some((uid, gid.unwrap_or(uid)))
            }
            None => self.all_root.then_some((0, 0)),
        }
    }
}

impl Rootdir<'_> {
    fn requests(&mut self) -> anyhow::Result<()> {
        for given in &self.args.subvolumes {
            let request = self.subvolume(given)?;
            let shown = request.path.display();
            if self
                .subvolumes
                .iter()
                .any(|other| other.path == request.path)
            {
                bail!("subvolume specified more than once: {shown}");
            }
            if request.is_default && self.subvolumes.iter().any(|other| other.is_default) {
                bail!("default subvolume can only be specified once");
            }
            self.subvolumes.push(request);
        }
        for given in &self.args.inode_flags {
            let request = self.inode_flags(given)?;
            self.flags.push(request);
        }
        Ok(())
    }

    fn subvolume(&self, given: &Path) -> anyhow::Result<SubvolumeRequest> {
        let (word, rest) = split_at_colon(given).unwrap_or((b"", given));
        let (path, access, is_default) = match word {
            b"rw" => (rest, Access::Writable, false),
            b"ro" => (rest, Access::ReadOnly, false),
            b"default" => (rest, Access::Writable, true),
            b"default-ro" => (rest, Access::ReadOnly, true),
            // The colon is part of the path.
            _ => (given, Access::Writable, false),
        };
        let request = SubvolumeRequest {
            path: self.below(path)?,
            access,
            is_default,
        };
        if self.is_folder && !self.path.join(&request.path).is_dir() {
            bail!("subvolume is not a directory: {}", path.display());
        }
        if request.path.as_os_str().is_empty() {
            bail!(
                "the top level is a subvolume in any case: {}",
                path.display()
            );
        }
        Ok(request)
    }

    fn inode_flags(&self, given: &Path) -> anyhow::Result<FlagsRequest> {
        let (words, path) = split_at_colon(given)
            .ok_or_else(|| anyhow!("no inode flags in {}", given.display()))?;
        let mut no_data_cow = false;
        for word in words.split(|&byte| byte == b',') {
            match word {
                b"nodatacow" => no_data_cow = true,
                b"nodatasum" => {}
                other => bail!("unknown inode flag: {}", String::from_utf8_lossy(other)),
            }
        }
        Ok(FlagsRequest {
            path: self.below(path)?,
            no_data_cow,
        })
    }

    /// Returns the path below the root. In an archive its existence is checked later.
    fn below(&self, path: &Path) -> anyhow::Result<PathBuf> {
        if !self.is_folder {
            let names = path.components();
            let names = names.filter(|name| matches!(name, Component::Normal(_)));
            return Ok(names.collect());
        }
        let wrong = || anyhow!("could not get canonical path: {}", path.display());
        // As in mkfs.btrfs, a leading slash means the root of the volume.
        let from_root = path.strip_prefix("/").unwrap_or(path);
        let whole = self.path.join(from_root).canonicalize();
        let whole = whole.map_err(|_| wrong())?;
        let below = whole.strip_prefix(&self.path).map_err(|_| wrong())?;
        Ok(below.to_owned())
    }

    /// Warns if fakeroot shows other owners than the real ones.
    pub(super) fn warn_of_fakeroot(&self, console: &mut Console) {
        let is_faked = std::env::var_os("FAKEROOTKEY").is_some_and(|key| !key.is_empty());
        if is_faked && self.is_folder && self.args.owner().is_none() {
            console.warning(
                "owners and devices that fakeroot makes up are not seen: files keep their real owners \
                 (--all-root, --owner, or an archive that tar makes within fakeroot)",
            );
        }
    }

    /// Adds these files and options to the volume. The files are opened before any target is opened for
    /// writing.
    pub(super) fn fill(&self, mkfs: Mkfs, targets: &[Target]) -> anyhow::Result<Mkfs> {
        let growth = if !targets.iter().all(Target::is_image) {
            Growth::Never
        } else if targets.iter().all(|target| target.may_have_any_size) {
            Growth::Freely
        } else {
            Growth::IfNeeded
        };
        let mut mkfs = if self.is_folder {
            mkfs.fill_from(&self.path)
        } else {
            mkfs.fill_from_archive(self.archive(targets)?)
        };
        mkfs = mkfs
            .compress(self.compress)
            .reflink(self.args.reflink)
            .shrink(self.args.shrink)
            .growth(growth);
        if let Some((uid, gid)) = self.args.owner() {
            mkfs = mkfs.owner(uid, gid);
        }
        for path in &self.args.dense {
            mkfs = mkfs.dense(self.below(path)?);
        }
        for SubvolumeRequest {
            path,
            access,
            is_default,
        } in &self.subvolumes
        {
            mkfs = if *is_default {
                mkfs.make_default_subvolume(path, *access)
            } else {
                mkfs.make_subvolume(path, *access)
            };
        }
        for FlagsRequest { path, no_data_cow } in &self.flags {
            mkfs = if *no_data_cow {
                mkfs.no_data_cow(path)
            } else {
                mkfs.no_data_sum(path)
            };
        }
        Ok(mkfs)
    }

    fn archive(&self, targets: &[Target]) -> anyhow::Result<File> {
        let file = if self.path.as_os_str() == STDIN {
            File::from(stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(&self.path).with_context(|| self.path.display().to_string())?
        };
        let archive = file.metadata()?;
        for target in targets {
            let existing = std::fs::metadata(&target.path).ok();
            let identity = |file: &Metadata| (file.dev(), file.ino());
            if existing.as_ref().map(identity) == Some(identity(&archive)) {
                bail!("{} is the archive itself", target.path.display());
            }
        }
        Ok(file)
    }

    /// Prints the head of a summary, in mkfs.btrfs's layout.
    pub(super) fn print(
        &self,
        filled: &FilledContents,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        writeln!(out, "Rootdir from:       {}", self.path.display())?;
        writeln!(out, "  Compress:         {}", Algorithm(self.compress))?;
        for request in &self.subvolumes {
            let kind = match (request.is_default, request.access) {
                (false, Access::Writable) => "(rw):",
                (false, Access::ReadOnly) => "(ro):",
                (true, Access::Writable) => "(drw):",
                (true, Access::ReadOnly) => "(dro):",
            };
            writeln!(out, "  Subvolume {kind:<7} {}", request.path.display())?;
        }
        for request in &self.flags {
            let path = request.path.display();
            let flags = if request.no_data_cow {
                "nodatacow"
            } else {
                "nodatasum"
            };
            writeln!(out, "  Inode flags:      {flags} {path}")?;
        }
        let shrink = if self.args.shrink { "yes" } else { "no" };
        writeln!(out, "  Shrink:           {shrink}")?;
        match &filled.shared {
            None => {}
            Some(Ok(bytes)) => {
                let (shared, all) = (
                    Units::default().size(*bytes),
                    Units::default().size(filled.data_bytes),
                );
                writeln!(out, "  Reflink:          {shared} of {all}")?;
            }
            Some(Err(error)) => writeln!(out, "  Reflink:          no, copied ({error})")?,
        }
        Ok(())
    }
}

/// Splits `WORD:PATH`.
fn split_at_colon(text: &Path) -> Option<(&[u8], &Path)> {
    let bytes = text.as_os_str().as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let rest = std::ffi::OsStr::from_bytes(&bytes[colon + 1..]);
    Some((&bytes[..colon], Path::new(rest)))
}

/// An algorithm with its level.
struct Algorithm(Compress);

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The level that the codecs use for 0.
        const USUAL_LEVEL: i32 = 3;
        let Compress {
            algorithm, level, ..
        } = self.0;
        match (algorithm, level) {
            (Compression::None, _) => f.write_str("no"),
            (Compression::Lzo, _) => f.write_str("lzo"),
            (_, 0) => write!(f, "{algorithm}:{USUAL_LEVEL}"),
            _ => write!(f, "{algorithm}:{level}"),
        }
    }
}

//! Copying files of a volume into a directory of this machine.
//!
//! Invariants
//! - COPY-1: nothing outside the destination is touched, whatever names and links the volume holds.
//!   Every name is one component, used below an open directory, and no link is followed.
//! - COPY-2: what fails is reported and the rest is copied.
//! - COPY-3: times and modes of a directory are set after all that is in it was written.
//!
//! Not here: which destination is meant (`command::cp`).

mod dest;
mod metadata;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::FileType;
use ubtrfs_engine::{Attr, Error, FileId, FileKind, Volume};

use self::dest::DestError;
pub(crate) use self::dest::open_directory;
use self::metadata::{Handle, Keeper, Xattrs};
use crate::console::Console;
use crate::file_data::{DataRanges, READ_BYTES, read_past_damage};
use crate::quoting::{Escaped, ShellQuoted};
use crate::rdev::DeviceNumber;
use crate::walk::{Filter, Order, Refused, Step, Walk};

#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Keep mode, owner, times, attributes and links.
    pub(crate) preserve: bool,
    pub(crate) verbose: bool,
}

#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Dest(#[from] DestError),
    #[error(transparent)]
    Walk(#[from] Refused),
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
    #[error("gave up at byte {0}: nothing more of it can be read")]
    GaveUp(u64),
}

/// After so many reads without a sound byte the rest of a file is given up: a crafted extent may claim to be
/// longer than any device.
const MAX_LOST_READS: usize = 64;

/// A directory that is being filled.
#[derive(Debug)]
struct OpenDir {
    fd: OwnedFd,
    name: Vec<u8>,
    /// What it gets once it is full; None for a directory that is not a copy.
    facts: Option<(Attr, Xattrs)>,
}

/// Where the first name of a file with several was copied to.
#[derive(Debug)]
struct FirstName {
    dir: Vec<u8>,
    name: Vec<u8>,
    /// Names that were not met yet.
    remaining: u32,
}

#[derive(Debug)]
pub(crate) struct Copier<'a> {
    volume: &'a Volume,
    console: &'a mut Console,
    options: CopyOptions,
    keeper: Keeper,
    /// The directory in which the copy began.
    top: OwnedFd,
    links: HashMap<FileId, FirstName>,
    buffer: Vec<u8>,
}

impl<'a> Copier<'a> {
    /// Copies into the directory `top`.
    pub(crate) fn new(
        volume: &'a Volume,
        top: OwnedFd,
        options: CopyOptions,
        console: &'a mut Console,
    ) -> Copier<'a> {
        Copier {
            volume,
            console,
            options,
            keeper: Keeper::new(options.preserve),
            top,
            links: HashMap::new(),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Copies `id` as `name`. `shown` is its path for messages.
    pub(crate) fn copy_as(&mut self, id: FileId, name: &[u8], shown: &[u8]) -> std::io::Result<()> {
        let top = OpenDir {
            fd: self.top.try_clone()?,
            name: Vec::new(),
            facts: None,
        };
        let mut dirs = vec![top];
        match self.entry(&dirs, name, id, shown) {
            Ok(Some(dir)) => {
                dirs.push(dir);
                self.fill(id, dirs, shown);
            }
            Ok(None) => {}
            Err(error) => self.complain(shown, error),
        }
        Ok(())
    }

    /// Copies what is in the directory `id`, and the directory's own attributes.
    pub(crate) fn copy_contents(&mut self, id: FileId, shown: &[u8]) -> std::io::Result<()> {
        match self.facts(id) {
            Ok(facts) => {
                let dir = OpenDir {
                    fd: self.top.try_clone()?,
                    name: Vec::new(),
                    facts: Some(facts),
                };
                self.fill(id, vec![dir], shown);
            }
            Err(error) => self.complain(shown, error),
        }
        Ok(())
    }

    fn complain(&mut self, path: &[u8], error: impl std::fmt::Display) {
        self.console
            .error(format_args!("cannot copy '{}': {error}", Escaped(path)));
    }

    fn facts(&self, id: FileId) -> Result<(Attr, Xattrs), Error> {
        let attr = self.volume.attr(id)?;
        let xattrs = match self.options.preserve {
            true => self.volume.xattrs(id)?,
            false => Vec::new(),
        };
        Ok((attr, xattrs))
    }

    /// Copies everything below the directory `id` into the last of `dirs`, of which each is in the one before
    /// it, and the first is where the copy began.
    fn fill(&mut self, id: FileId, mut dirs: Vec<OpenDir>, shown: &[u8]) {
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, id, shown, Order::Index, filter);
        while let Some(step) = walk.next() {
            match step {
                Step::Entry(entry) => {
                    let copied = self.entry(&dirs, &entry.name, entry.id, walk.path());
                    let entered = copied.and_then(|dir| {
                        if dir.is_some() {
                            walk.enter(&entry)?;
                        }
                        Ok(dir)
                    });
                    match entered {
                        Ok(dir) => dirs.extend(dir),
                        Err(error) => self.complain(walk.path(), error),
                    }
                }
                Step::Leave => {
                    if let Some(dir) = dirs.pop()
                        && let Some((attr, xattrs)) = &dir.facts
                    {
                        self.keep(&dir.fd, Handle::Open, attr, xattrs, walk.path());
                    }
                }
                Step::Failed(error) => self.complain(walk.path(), error),
            }
        }
    }

    /// Copies one entry into the last of `dirs`; a directory is made and returned to be filled.
    fn entry(
        &mut self,
        dirs: &[OpenDir],
        name: &[u8],
        id: FileId,
        shown: &[u8],
    ) -> Result<Option<OpenDir>, CopyError> {
        let Some(parent) = dirs.last() else {
            return Ok(None);
        };
        let (attr, xattrs) = self.facts(id)?;
        if let Some(bar) = self.console.progress() {
            bar.set_message(Escaped(shown).to_string());
        }
        if self.options.verbose {
            let _ = writeln!(self.console.out, "{}", ShellQuoted(shown));
        }
        if attr.kind == FileKind::Directory {
            return self.directory(parent, name, attr, xattrs).map(Some);
        }
        let has_links = self.options.preserve && attr.nlink > 1;
        if has_links && self.link(parent, name, id)? {
            return Ok(None);
        }
        self.one(parent, name, id, &attr, &xattrs, shown)?;
        if has_links {
            let first = FirstName {
                dir: path_of(dirs),
                name: name.to_vec(),
                remaining: attr.nlink - 1,
            };
            self.links.insert(id, first);
        }
        Ok(None)
    }

    fn directory(
        &mut self,
        parent: &OpenDir,
        name: &[u8],
        attr: Attr,
        xattrs: Xattrs,
    ) -> Result<OpenDir, CopyError> {
        let (fd, made) = dest::directory(&parent.fd, name)?;
        let facts = (made || self.options.preserve).then_some((attr, xattrs));
        let name = name.to_vec();
        Ok(OpenDir { fd, name, facts })
    }

    /// Gives a copy that exists a further name; false if the file was not copied yet.
    fn link(&mut self, parent: &OpenDir, name: &[u8], id: FileId) -> Result<bool, CopyError> {
        let Some(first) = self.links.get_mut(&id) else {
            return Ok(false);
        };
        dest::link(&self.top, &first.dir, &first.name, &parent.fd, name)?;
        first.remaining -= 1;
        if first.remaining == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }

    /// Makes a copy of something that is no directory.
    fn one(
        &mut self,
        parent: &OpenDir,
        name: &[u8],
        id: FileId,
        attr: &Attr,
        xattrs: &Xattrs,
        shown: &[u8],
    ) -> Result<(), CopyError> {
        let node = |kind, device| dest::node(&parent.fd, name, kind, device);
        match attr.kind {
            FileKind::Regular => {
                let file = dest::file(&parent.fd, name)?;
                let copied = self.data(id, attr.size, &file, shown);
                self.keep(&file, Handle::Open, attr, xattrs, shown);
                return copied;
            }
            FileKind::Directory => return Ok(()),
            FileKind::Symlink => {
                let target = self.volume.readlink(id)?;
                dest::symlink(&parent.fd, name, &target)?;
            }
            FileKind::Fifo => node(FileType::Fifo, 0)?,
            FileKind::Socket => node(FileType::Socket, 0)?,
            FileKind::CharDevice => node(FileType::CharacterDevice, device_of(attr))?,
            FileKind::BlockDevice => node(FileType::BlockDevice, device_of(attr))?,
        }
        let made = dest::refer(&parent.fd, name)?;
        self.keep(&made, Handle::Reference, attr, xattrs, shown);
        Ok(())
    }

    fn keep(&mut self, fd: impl AsFd, handle: Handle, attr: &Attr, xattrs: &Xattrs, shown: &[u8]) {
        for problem in self.keeper.apply(fd, handle, attr, xattrs) {
            self.console
                .error(format_args!("'{}': {problem}", Escaped(shown)));
        }
    }

    /// Writes the data of a file where it has any; the rest stays holes.
    fn data(&mut self, id: FileId, size: u64, file: &File, shown: &[u8]) -> Result<(), CopyError> {
        file.set_len(size).map_err(CopyError::Write)?;
        let mut ranges = DataRanges::of(self.volume, id);
        let mut damage = Vec::new();
        let mut lost_reads = 0;
        while let Some(range) = ranges.next()? {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(READ_BYTES as u64) as usize;
                let part = &mut self.buffer[..len];
                if read_past_damage(self.volume, id, at, part, &mut damage) {
                    file.write_all_at(part, at).map_err(CopyError::Write)?;
                    lost_reads = 0;
                } else {
                    lost_reads += 1;
                }
                for damage in damage.drain(..) {
                    let (start, end) = (damage.range.start, damage.range.end);
                    let error = damage.error;
                    self.console.error(format_args!(
                        "'{}': bytes {start} to {end} copied as zeros: {error}",
                        Escaped(shown)
                    ));
                }
                if let Some(bar) = self.console.progress() {
                    bar.inc(len as u64);
                }
                at += len as u64;
                if lost_reads >= MAX_LOST_READS {
                    return Err(CopyError::GaveUp(at));
                }
            }
        }
        Ok(())
    }
}

/// The path of the last of `dirs` below the first.
fn path_of(dirs: &[OpenDir]) -> Vec<u8> {
    let names: Vec<&[u8]> = dirs.iter().skip(1).map(|dir| &*dir.name).collect();
    names.join(&b'/')
}

fn device_of(attr: &Attr) -> rustix::fs::Dev {
    let device = DeviceNumber::from_inode(attr.rdev);
    rustix::fs::makedev(device.major, device.minor)
}

//! Writing a directory or file of a volume as a tar archive.
//!
//! Invariants
//! - EXPORT-1: the archive stays valid even if files cannot be read. A damaged range is archived as zeros and reported;
//!   a file that cannot be examined is left out and reported.
//! - EXPORT-2: memory is bounded by `MAX_SPARSE_PARTS` of one file, and by the files with several names that the walk
//!   has only partly reached.
//! - EXPORT-3: no member's name leads out of the archived directory.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;

use rustix::io::Errno;
use ubtrfs_device::errno_of;
use ubtrfs_device::progress::{Cancelled, Effect, Problem, Progress, Watch};
use ubtrfs_format::limits::{self, LimitError};
use ubtrfs_fs::{Attr, Error, FileId, FileKind, Volume};

use super::writer::{Member, MemberKind, TarWriter};
use crate::damage::kind_of_engine_error;
use crate::transfer::file_data::{Damage, DataRanges, READ_BYTES, read_past_damage};
use crate::transfer::walk::{Filter, Order, Refused, Step, Walk, is_component};

#[cfg(test)]
mod tests;

/// The maximum number of data ranges between holes. A file with more is left out, because its holes may be longer than
/// any disk. Tests use a small number.
const MAX_SPARSE_PARTS: usize = if cfg!(test) { 8 } else { 1 << 20 };

/// An error that ends an archive early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TarError {
    /// The file at the top of the archive cannot be examined.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The archive cannot be written.
    #[error("{0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl TarError {
    /// Returns the errno that Linux has for the same failure.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            TarError::Engine(error) => error.errno(),
            TarError::Write(error) => errno_of(error),
            TarError::Cancelled(_) => Errno::INTR,
        }
    }
}

/// A problem with one file while the others are archived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TarProblem {
    /// A name that is not one component of a path.
    #[error("left out: not a name that a directory can hold")]
    Name,
    /// A file with more data ranges between holes than are supported.
    #[error("left out: too many holes")]
    TooManyHoles,
    /// A size that exceeds the maximum of a file.
    #[error("left out: it claims {0}")]
    Limit(#[from] LimitError),
    /// A tar archive cannot contain sockets.
    #[error("socket left out")]
    Socket,
    /// A range that cannot be read.
    #[error("bytes {} to {} archived as zeros: {}", .0.range.start, .0.range.end, .0.error)]
    Damaged(Damage),
    /// A directory that is not entered.
    #[error(transparent)]
    Enter(#[from] Refused),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl TarProblem {
    /// Returns the problem of the file at `path`, for programs.
    fn at(&self, path: &[u8]) -> Problem {
        let (errno, kind) = match self {
            TarProblem::Name | TarProblem::Limit(_) => (Errno::UCLEAN, ErrorKind::InvalidData),
            TarProblem::TooManyHoles | TarProblem::Socket => {
                (Errno::OPNOTSUPP, ErrorKind::Unsupported)
            }
            TarProblem::Enter(Refused::Elsewhere) => (Errno::UCLEAN, ErrorKind::InvalidData),
            TarProblem::Enter(Refused::Engine(error))
            | TarProblem::Engine(error)
            | TarProblem::Damaged(Damage { error, .. }) => {
                (error.errno(), kind_of_engine_error(error))
            }
        };
        let effect = match self {
            TarProblem::Socket => Effect::Unsupported,
            TarProblem::Damaged(_) => Effect::Incomplete,
            _ => Effect::Failed,
        };
        let problem = Problem::new(path, self, errno);
        problem.with_kind(kind).with_effect(effect)
    }
}

/// A writer of files and trees of a volume to a tar archive.
pub(crate) struct Archiver<'a, W> {
    volume: &'a Volume,
    tar: TarWriter<W>,
    /// The archived path of each file with several names, and the number of remaining names.
    links: HashMap<FileId, (Vec<u8>, u32)>,
    watch: Watch<'a>,
    buffer: Vec<u8>,
}

impl<W> fmt::Debug for Archiver<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archiver").finish_non_exhaustive()
    }
}

impl<'a, W: Write> Archiver<'a, W> {
    /// Creates an archive that is written to `out`, in small parts: `out` should be buffered.
    pub(crate) fn new(
        volume: &'a Volume,
        out: W,
        progress: &'a mut dyn Progress,
    ) -> Archiver<'a, W> {
        Archiver {
            volume,
            tar: TarWriter::new(out),
            links: HashMap::new(),
            watch: Watch::new(progress),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Ends the archive. Without this call it is incomplete.
    ///
    /// # Errors
    ///
    /// The archive cannot be written.
    pub(crate) fn finish(self) -> Result<(), TarError> {
        Ok(self.tar.finish()?)
    }

    /// Archives a file, or a directory with all its contents, as a member of this name.
    ///
    /// # Errors
    ///
    /// The archive cannot be written, or the file cannot be examined.
    pub(crate) fn tree(&mut self, file: FileId, name: &[u8]) -> Result<(), TarError> {
        let kind = self.volume.attr(file)?.kind;
        self.member(name, file)?;
        if kind != FileKind::Directory {
            return Ok(());
        }
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, file, name, Order::Index, filter);
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
                    // EXPORT-3
                    if !is_component(&entry.name) {
                        self.report(walk.path(), TarProblem::Name)?;
                        continue;
                    }
                    let archived = self.member(walk.path(), entry.id)?;
                    if archived == Some(FileKind::Directory)
                        && let Err(error) = walk.enter(&entry)
                    {
                        self.report(walk.path(), error.into())?;
                    }
                }
                Step::Leave => {}
                Step::Failed(error) => self.report(walk.path(), error.into())?,
            }
        }
        Ok(())
    }

    /// Archives one file and returns its kind, or `None` if it was left out. An error ends the archive.
    fn member(&mut self, path: &[u8], id: FileId) -> Result<Option<FileKind>, TarError> {
        let attributes = self
            .volume
            .attr(id)
            .and_then(|attr| Ok((attr, self.volume.xattrs(id)?)));
        let (attr, xattrs) = match attributes {
            Ok(attributes) => attributes,
            Err(error) => {
                self.report(path, error.into())?;
                return Ok(None);
            }
        };
        self.watch.begin(path)?;
        if attr.kind != FileKind::Directory && attr.nlink > 1 && self.link(path, id, &attr)? {
            return Ok(Some(attr.kind));
        }
        let mut member = member_of(path, &attr, &xattrs);
        match attr.kind {
            FileKind::Directory => {
                let path = [path, b"/"].concat();
                member.path = &path;
                self.tar.begin(&member)?;
            }
            FileKind::Symlink => match self.volume.readlink(id) {
                Ok(target) => {
                    member.kind = MemberKind::Symlink(&target);
                    self.tar.begin(&member)?;
                }
                Err(error) => {
                    self.report(path, error.into())?;
                    return Ok(None);
                }
            },
            FileKind::Regular => {
                if !self.file(member, id, attr.size)? {
                    return Ok(None);
                }
            }
            FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo => {
                let device = member.file.device;
                member.kind = match attr.kind {
                    FileKind::CharDevice => MemberKind::CharDevice(device),
                    FileKind::BlockDevice => MemberKind::BlockDevice(device),
                    _ => MemberKind::Fifo,
                };
                self.tar.begin(&member)?;
            }
            FileKind::Socket => {
                self.report(path, TarProblem::Socket)?;
                return Ok(None);
            }
        }
        if attr.kind != FileKind::Directory && attr.nlink > 1 {
            self.links.insert(id, (path.to_vec(), attr.nlink - 1));
        }
        Ok(Some(attr.kind))
    }

    /// Archives another name of a file that is in the archive. Returns false if it is not.
    fn link(&mut self, path: &[u8], id: FileId, attr: &Attr) -> io::Result<bool> {
        let Some((first, remaining)) = self.links.get_mut(&id) else {
            return Ok(false);
        };
        let mut member = member_of(path, attr, &[]);
        member.kind = MemberKind::HardLink(first);
        self.tar.begin(&member)?;
        *remaining -= 1;
        // EXPORT-2
        if *remaining == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }

    /// Archives a regular file. Returns false if it was left out.
    fn file(&mut self, member: Member<'_>, id: FileId, size: u64) -> Result<bool, TarError> {
        if let Err(limit) = limits::check_file_size(size) {
            self.report(member.path, limit.into())?;
            return Ok(false);
        }
        let Some(map) = self.sparse_parts(member.path, id, size)? else {
            self.report(member.path, TarProblem::TooManyHoles)?;
            return Ok(false);
        };
        let whole: Vec<Range<u64>> = std::iter::once(0..size).collect();
        let sparse = map != whole && size > 0;
        let kind = MemberKind::File {
            size,
            map: sparse.then_some(&map),
        };
        let member = Member { kind, ..member };
        self.tar.begin(&member)?;
        let mut damage = Vec::new();
        for part in if sparse { &map } else { &whole } {
            let mut at = part.start;
            while at < part.end {
                let len = (part.end - at).min(READ_BYTES as u64) as usize;
                // EXPORT-1: the member has all the bytes that its header declares.
                read_past_damage(self.volume, id, at, &mut self.buffer[..len], &mut damage);
                for damage in damage.drain(..) {
                    self.report(member.path, TarProblem::Damaged(damage))?;
                }
                self.tar.data(&self.buffer[..len])?;
                self.watch.advance(len as u64)?;
                at += len as u64;
            }
        }
        self.tar.pad()?;
        Ok(true)
    }

    fn report(&mut self, path: &[u8], problem: TarProblem) -> Result<(), TarError> {
        Ok(self.watch.problem(&problem.at(path))?)
    }

    /// Lists the data ranges of a file, in whole sectors like extents. GNU tar requires a range of length 0 at the end
    /// of a file that ends in a hole. Returns `None` if there are too many.
    fn sparse_parts(
        &mut self,
        path: &[u8],
        id: FileId,
        size: u64,
    ) -> Result<Option<Vec<Range<u64>>>, TarError> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut ranges = DataRanges::of(self.volume, id);
        loop {
            match ranges.next() {
                // EXPORT-2
                Ok(Some(range)) if parts.len() + 1 < MAX_SPARSE_PARTS => match parts.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => parts.push(range),
                },
                Ok(Some(_)) => return Ok(None),
                Ok(None) => break,
                Err(error) => {
                    self.report(path, error.into())?;
                    break;
                }
            }
        }
        if parts.last().is_none_or(|last| last.end < size) {
            parts.push(size..size);
        }
        Ok(Some(parts))
    }
}

fn member_of<'a>(path: &'a [u8], attr: &Attr, xattrs: &'a [(Vec<u8>, Vec<u8>)]) -> Member<'a> {
    Member {
        path,
        kind: MemberKind::Directory,
        file: attr.into(),
        xattrs,
    }
}

//! Unpacking an archive into a directory of a volume.
//!
//! Invariants
//! - UNPACK-1: nothing outside the directory is touched. A member whose path has ".." is refused. Links on the path of
//!   a member are followed as if the directory were the root, so that none leads out of it.
//! - UNPACK-2: a failure is reported and the rest is unpacked, unless all of it would fail.
//! - UNPACK-3: the times of a directory are set after all its contents are created.
//!
//! Memory: one member without its data, and the times of `MAX_TIMED` directories.

use std::collections::HashMap;
use std::fmt;

use rustix::io::Errno;
use ubtrfs_device::progress::{Cancelled, Effect, Problem, Progress, Watch};
use ubtrfs_format::limits::LimitError;
use ubtrfs_fs::{Error, FileId, FileKind, FileTime, NewInode, SetAttr, SetTime, Volume};
use ubtrfs_mkfs::archive::{ArchiveError, Member, MemberBody, Members, OwnerNames};

use crate::damage::kind_of_error;
use crate::escaped::Escaped;
use crate::host_owners::HostOwners;
use crate::transfer::copy::{Attributes, CopyError, CopyOptions, Destination, ToVolume};
use crate::transfer::file_data::READ_BYTES;

#[cfg(test)]
mod tests;

/// The maximum number of links on one path, the same as in the kernel.
const MAX_LINKS: usize = 40;
/// Permissions of directories without a member of their own.
const MADE_ON_THE_WAY: u32 = 0o755;
/// The maximum number of directories whose times are pending.
const MAX_TIMED: usize = 1 << 18;

/// An error of unpacking: one that ends it, or a problem with one member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UnpackError {
    /// A member that cannot be written, nor any that follows.
    #[error("cannot write '{path}': {source}")]
    At {
        path: String,
        source: Box<UnpackError>,
    },
    /// The archive cannot be read further.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The archive cannot be read further, after some of it was unpacked.
    #[error("{source}; the {members} members before it are unpacked")]
    Ended { members: u64, source: ArchiveError },
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("it cannot have {0}")]
    Limit(#[from] LimitError),
    #[error("refused: its path leads out of the directory")]
    Outside,
    #[error("its path is the directory itself")]
    Root,
    #[error("it is another name of '{0}', which does not exist")]
    NoTarget(String),
    #[error("it would replace a directory that is not empty")]
    ReplacesFullDirectory,
    #[error(
        "its ACL is left out: malformed, or of users or groups that this machine does not know"
    )]
    Acl,
    #[error("cannot keep the times of directory {dir:?}: {source}")]
    Times { dir: FileId, source: Box<Error> },
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl From<Error> for UnpackError {
    fn from(error: Error) -> UnpackError {
        UnpackError::Copy(CopyError::Make(error))
    }
}

impl UnpackError {
    /// Returns the errno that Linux has for the same failure.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            UnpackError::At { source, .. } => source.errno(),
            UnpackError::Archive(error) | UnpackError::Ended { source: error, .. } => error.errno(),
            UnpackError::Limit(limit) => limit.errno(),
            UnpackError::Copy(error) => error.errno(),
            UnpackError::Outside | UnpackError::Root | UnpackError::Acl => Errno::UCLEAN,
            UnpackError::NoTarget(_) => Errno::NOENT,
            UnpackError::ReplacesFullDirectory => Errno::NOTEMPTY,
            UnpackError::Times { source, .. } => source.errno(),
            UnpackError::Cancelled(_) => Errno::INTR,
        }
    }

    /// Returns whether the archive ends early.
    pub(crate) fn is_truncated(&self) -> bool {
        match self {
            UnpackError::At { source, .. } => source.is_truncated(),
            UnpackError::Archive(error) | UnpackError::Ended { source: error, .. } => {
                error.is_truncated()
            }
            _ => false,
        }
    }

    /// Returns the problem of the member at `path`, for programs.
    fn at(&self, path: &[u8]) -> Problem {
        let errno = self.errno();
        let effect = match self {
            UnpackError::Acl
            | UnpackError::Times { .. }
            | UnpackError::Copy(CopyError::Keep { .. }) => Effect::Incomplete,
            _ => Effect::Failed,
        };
        let problem = Problem::new(path, self, errno).with_effect(effect);
        problem.with_kind(kind_of_error(self, errno))
    }

    fn is_final(&self) -> bool {
        match self {
            UnpackError::Archive(_)
            | UnpackError::Ended { .. }
            | UnpackError::At { .. }
            | UnpackError::Times { .. }
            | UnpackError::Cancelled(_) => true,
            UnpackError::Copy(error) => error.is_final(),
            _ => false,
        }
    }
}

/// A writer of an archive's members to a directory of a volume.
pub(crate) struct Unpacker<'a> {
    volume: &'a Volume,
    /// The directory to unpack into.
    top: FileId,
    /// Its path for messages.
    shown_top: Vec<u8>,
    destination: ToVolume<'a>,
    watch: Watch<'a>,
    /// The access and modification times that directories get at the end.
    times: HashMap<FileId, (FileTime, FileTime)>,
    /// Whether pending times were already set: the next change of such a directory must not lose them.
    has_kept_times: bool,
    max_timed: usize,
    buffer: Vec<u8>,
    owners: OwnerNames,
}

impl fmt::Debug for Unpacker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unpacker = f.debug_struct("Unpacker");
        unpacker.field("top", &self.top).finish_non_exhaustive()
    }
}

impl<'a> Unpacker<'a> {
    /// Creates an unpacker into the directory `top`, whose path for messages is `shown_top`. Directories without a
    /// member get their permissions less `umask`. Names of users and groups in ACLs refer to the host.
    pub(crate) fn new(
        volume: &'a Volume,
        (top, shown_top): (FileId, &[u8]),
        umask: u32,
        progress: &'a mut dyn Progress,
    ) -> Unpacker<'a> {
        let shown_top = shown_top.strip_suffix(b"/").unwrap_or(shown_top);
        let options = CopyOptions {
            preserve: true,
            umask,
            ..CopyOptions::default()
        };
        Unpacker {
            volume,
            top,
            shown_top: shown_top.to_vec(),
            destination: ToVolume::new(volume, options),
            watch: Watch::new(progress),
            times: HashMap::new(),
            has_kept_times: false,
            max_timed: MAX_TIMED,
            buffer: vec![0; READ_BYTES],
            owners: HostOwners::load().numbers(),
        }
    }

    /// Unpacks all members.
    ///
    /// # Errors
    ///
    /// The archive cannot be read further, or further members would fail for the same reason. Files that were already
    /// unpacked are kept.
    pub(crate) fn all(&mut self, members: &mut Members<'_>) -> Result<(), UnpackError> {
        let unpacked = self.members(members);
        // Also after an error, so that the unpacked part has its original times.
        let kept = self.keep_times();
        unpacked.and(kept)
    }

    fn members(&mut self, members: &mut Members<'_>) -> Result<(), UnpackError> {
        let mut count = 0;
        while let Some(member) = next_member(members, count)? {
            count += 1;
            self.watch.begin(&member.path)?;
            if let Err(error) = self.member(&member, members) {
                self.report(&member.path, error)?;
            }
        }
        Ok(members.drain()?)
    }

    fn report(&mut self, path: &[u8], error: UnpackError) -> Result<(), UnpackError> {
        if let UnpackError::Copy(_) = error
            && error.is_final()
        {
            let path = [&self.shown_top, &b"/"[..], path].concat();
            return Err(UnpackError::At {
                path: Escaped(&path).to_string(),
                source: Box::new(error),
            });
        }
        // UNPACK-2
        if error.is_final() {
            return Err(error);
        }
        Ok(self.watch.problem(&error.at(path))?)
    }

    /// Sets the pending times of directories.
    fn keep_times(&mut self) -> Result<(), UnpackError> {
        for (dir, (atime, mtime)) in std::mem::take(&mut self.times) {
            let times = SetAttr {
                atime: Some(SetTime::At(atime)),
                mtime: Some(SetTime::At(mtime)),
                ..SetAttr::default()
            };
            let set = self.volume.set_attr(dir, &times);
            set.map_err(|error| UnpackError::Times {
                dir,
                source: Box::new(error),
            })?;
        }
        self.has_kept_times = true;
        Ok(())
    }

    fn set_times_later(&mut self, dir: FileId, attributes: &Attributes) -> Result<(), UnpackError> {
        if self.times.len() >= self.max_timed {
            self.keep_times()?;
        }
        let times = &attributes.file.times;
        self.times.insert(dir, (times.access, times.modification));
        Ok(())
    }

    /// Makes sure that a directory which is about to change gets its times at the end (UNPACK-3).
    fn before_change(&mut self, dir: FileId) -> Result<(), UnpackError> {
        if self.has_kept_times && !self.times.contains_key(&dir) {
            let attr = self.volume.attr(dir)?;
            self.set_times_later(dir, &Attributes::of(&attr, Vec::new()))?;
        }
        Ok(())
    }

    fn member(&mut self, member: &Member, members: &mut Members<'_>) -> Result<(), UnpackError> {
        member.check()?;
        let (attributes, is_whole) = attributes_of(member, &self.owners);
        if !is_whole {
            self.report(&member.path, UnpackError::Acl)?;
        }
        let names = names_of(&member.path)?;
        let Some((name, above)) = names.split_last() else {
            if attributes.kind != FileKind::Directory {
                return Err(UnpackError::Root);
            }
            return self.keep_directory(self.top, &attributes, &member.path);
        };
        let parent = self.directory(above, OnTheWay::Make)?;
        self.before_change(parent)?;
        if attributes.kind == FileKind::Directory {
            let dir = self.mkdir(parent, name, &attributes)?;
            return self.keep_directory(dir, &attributes, &member.path);
        }
        self.clear(parent, name)?;
        let made = match &member.body {
            MemberBody::HardLink(target) => return self.link(target, parent, name),
            MemberBody::Symlink(target) => self.destination.symlink(&parent, name, target)?,
            MemberBody::File { size, parts } => {
                let made = self.destination.file(&parent, name, &attributes, None)?;
                let whole = [(0, *size)];
                for &(at, len) in parts.as_deref().unwrap_or(&whole) {
                    self.data(member, members, made, (at, len))?;
                }
                self.destination.set_size(&made, *size)?;
                made
            }
            _ => self.destination.node(&parent, name, &attributes)?,
        };
        self.keep(made, &attributes, &member.path)
    }

    fn keep(
        &mut self,
        made: FileId,
        attributes: &Attributes,
        path: &[u8],
    ) -> Result<(), UnpackError> {
        for problem in self.destination.keep(&made, attributes) {
            self.report(path, problem.into())?;
        }
        Ok(())
    }

    fn keep_directory(
        &mut self,
        dir: FileId,
        attributes: &Attributes,
        path: &[u8],
    ) -> Result<(), UnpackError> {
        self.keep(dir, attributes, path)?;
        self.set_times_later(dir, attributes)
    }

    fn data(
        &mut self,
        member: &Member,
        members: &mut Members<'_>,
        made: FileId,
        (mut at, mut left): (u64, u64),
    ) -> Result<(), UnpackError> {
        while left > 0 {
            let len = left.min(READ_BYTES as u64);
            let bytes = &mut self.buffer[..len as usize];
            members.read(member, bytes)?;
            self.destination.write(&made, at, bytes)?;
            self.watch.advance(len)?;
            at += len;
            left -= len;
        }
        Ok(())
    }

    fn link(&mut self, target: &[u8], parent: FileId, name: &[u8]) -> Result<(), UnpackError> {
        let missing = || UnpackError::NoTarget(Escaped(target).to_string());
        let names = names_of(target)?;
        let (last, above) = names.split_last().ok_or_else(missing)?;
        let found = match self.directory(above, OnTheWay::MustExist) {
            Ok(dir) => self.volume.lookup(dir, last)?,
            Err(_) => None,
        };
        let first = found.ok_or_else(missing)?;
        Ok(self.destination.link(&self.top, &first, &parent, name)?)
    }

    /// Creates a directory, or returns an existing one; any other file is replaced.
    fn mkdir(
        &mut self,
        parent: FileId,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<FileId, UnpackError> {
        if let Some(existing) = self.volume.lookup(parent, name)?
            && self.volume.attr(existing)?.kind != FileKind::Directory
        {
            self.volume.unlink(parent, name)?;
        }
        let (dir, _) = self.destination.directory(&parent, name, attributes)?;
        Ok(dir)
    }

    /// Removes an empty directory that is in the way of another file.
    fn clear(&mut self, parent: FileId, name: &[u8]) -> Result<(), UnpackError> {
        let Some(existing) = self.volume.lookup(parent, name)? else {
            return Ok(());
        };
        if self.volume.attr(existing)?.kind != FileKind::Directory {
            return Ok(());
        }
        match self.volume.rmdir(parent, name) {
            Ok(()) => {
                self.times.remove(&existing);
                Ok(())
            }
            Err(Error::NotEmpty(_)) => Err(UnpackError::ReplacesFullDirectory),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the directory at `names` below the top (UNPACK-1).
    fn directory(&mut self, names: &[&[u8]], on_the_way: OnTheWay) -> Result<FileId, UnpackError> {
        let mut way = vec![self.top];
        let mut pending: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut links = 0;
        while let Some(name) = pending.pop() {
            let at = way.last().copied().unwrap_or(self.top);
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    // `..` at the top stays there, as in a root directory.
                    if way.len() > 1 {
                        way.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let next = match self.volume.lookup(at, &name)? {
                Some(next) => next,
                None if on_the_way == OnTheWay::Make => {
                    self.before_change(at)?;
                    let new = NewInode::directory(MADE_ON_THE_WAY);
                    self.volume.create(at, &name, &new)?
                }
                None => return Err(Error::NotFound.into()),
            };
            match self.volume.attr(next)?.kind {
                FileKind::Directory => way.push(next),
                FileKind::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::TooManySymlinks.into());
                    }
                    let target = self.volume.readlink(next)?;
                    // An absolute target continues at the top, as if it were the root.
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    let names = target.split(|&byte| byte == b'/');
                    pending.extend(names.rev().map(<[u8]>::to_vec));
                }
                _ => return Err(Error::NotADirectory(next).into()),
            }
        }
        Ok(way.last().copied().unwrap_or(self.top))
    }
}

/// The treatment of missing directories on the path of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnTheWay {
    Make,
    MustExist,
}

/// Reads the next member. An error includes the number of earlier members.
fn next_member(members: &mut Members<'_>, count: u64) -> Result<Option<Member>, UnpackError> {
    members.next_member().map_err(|source| match count {
        0 => UnpackError::Archive(source),
        members => UnpackError::Ended { members, source },
    })
}

/// Splits a path into its names below the top. A leading slash also means the top.
fn names_of(path: &[u8]) -> Result<Vec<&[u8]>, UnpackError> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        Err(UnpackError::Outside)
    } else {
        Ok(names)
    }
}

/// Converts the attributes of a member. The flag is false if an ACL was left out.
fn attributes_of(member: &Member, owners: &OwnerNames) -> (Attributes, bool) {
    let stored = &member.attributes;
    let (xattrs, is_whole) = stored.xattrs_with_acls(owners);
    let kind = FileKind::from_mode(stored.file.mode).unwrap_or(FileKind::Regular);
    let attributes = Attributes {
        kind,
        file: stored.file,
        nlink: 1,
        size: 0,
        xattrs,
    };
    (attributes, is_whole)
}

//! Deferred commands, which may be executed together with the next one.
//!
//! - Creation of a file or directory: the kernel creates it with a temporary name, and then renames it.
//! - The data of a small file, if it follows immediately.
//! - Owner, mode and times: a sender ends each file with these three commands.
//!
//! Executed separately, each command would be one operation on the volume.
//!
//! Invariants
//! - DEFERRED-1: deferred commands are executed before any other command, and before the subvolume is finished.
//! - DEFERRED-2: an error names the failed command. If combined commands fail, they are repeated one by one.

use ubtrfs_fs::FileTime;

use super::error::{CommandFault, ReceiveFault};
use super::path::TreePath;
use super::target::{NewFile, SetAttributes};
use super::{Failed, Receiver, TYPE, report};
use crate::format::{Command, CommandKind};

const PERMISSIONS: u64 = 0o7777;
/// By default, no volume stores larger data inline.
const MAX_DATA_BYTES: usize = 2048;

/// Checked but not executed commands for one file, in this order.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// The path of the file, after a deferred rename.
    path: Vec<u8>,
    made: Option<Made>,
    /// Each with its offset in the stream, ordered as in [`SetAttributes`]. Empty for a directory that is to be
    /// created.
    commands: Vec<(CommandKind, u64, SetAttributes)>,
    /// All data for a file that is to be created.
    data: Vec<u8>,
}

/// The deferred creation of a file.
#[derive(Debug)]
struct Made {
    command: CommandKind,
    offset: u64,
    new: NewFile<'static>,
    /// The original path and the offset of the rename command, if it was renamed.
    renamed: Option<(Vec<u8>, u64)>,
    /// The offset of the write command.
    written: Option<u64>,
}

impl Deferred {
    fn is_empty(&self) -> bool {
        self.made.is_none() && self.commands.is_empty()
    }

    /// Defers the creation of a file. Returns false for an invalid path.
    fn make(
        &mut self,
        path: &[u8],
        command: CommandKind,
        offset: u64,
        new: NewFile<'static>,
    ) -> bool {
        let Ok(path) = TreePath::below_root(path) else {
            return false;
        };
        self.name(path);
        self.made = Some(Made {
            command,
            offset,
            new,
            renamed: None,
            written: None,
        });
        true
    }

    /// Returns the file at `path` if its creation is deferred and no other command for it, except a rename.
    fn made_at(&mut self, path: TreePath<'_>) -> Option<&mut Made> {
        let is_new = self.commands.is_empty() && self.path == path.as_bytes();
        self.made
            .as_mut()
            .filter(|made| is_new && made.written.is_none())
    }

    /// Creates a deferred directory directly under its new name by `create`, if possible. For a file, only records
    /// the new name.
    fn rename(
        &mut self,
        path: &[u8],
        to: &[u8],
        offset: u64,
        create: impl FnOnce(TreePath<'_>, TreePath<'_>, &NewFile<'_>) -> Option<bool>,
    ) -> bool {
        let (Ok(path), Ok(to)) = (TreePath::below_root(path), TreePath::below_root(to)) else {
            return false;
        };
        let made = self.made_at(path);
        let Some(made) = made.filter(|made| made.renamed.is_none()) else {
            return false;
        };
        if made.new == NewFile::File {
            made.renamed = Some((path.as_bytes().to_vec(), offset));
            self.name(to);
            return true;
        }
        let is_made = create(path, to, &made.new) == Some(true);
        if is_made {
            self.made = None;
        }
        is_made
    }

    /// Defers the first write to a file that is to be created. Returns false if the data is too large.
    fn write(&mut self, path: &[u8], data: &[u8], offset: u64) -> bool {
        let Ok(path) = TreePath::below_root(path) else {
            return false;
        };
        let is_small = (1..=MAX_DATA_BYTES).contains(&data.len());
        match self.made_at(path) {
            Some(made) if is_small && made.new == NewFile::File => {
                made.written = Some(offset);
                self.data.clear();
                self.data.extend_from_slice(data);
                true
            }
            _ => false,
        }
    }

    /// Defers an attribute that can be set together with earlier ones: of the same file, and later in the order.
    fn set(&mut self, path: TreePath<'_>, command: (CommandKind, u64, SetAttributes)) -> bool {
        let last = self.commands.last();
        let is_next = last.is_none_or(|(.., before)| before.rank() < command.2.rank());
        let is_other = !self.is_empty() && self.path != path.as_bytes();
        let is_dir = self
            .made
            .as_ref()
            .is_some_and(|made| made.new != NewFile::File);
        if is_dir || is_other || !is_next {
            return false;
        }
        if self.is_empty() {
            self.name(path);
        }
        self.commands.push(command);
        true
    }

    fn name(&mut self, path: TreePath<'_>) {
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
    }
}

impl SetAttributes {
    /// Returns the rank of the last attribute that is set.
    fn rank(&self) -> usize {
        let is_set = [
            self.owner.is_some(),
            self.mode.is_some(),
            self.times.is_some(),
        ];
        is_set.iter().rposition(|&is| is).map_or(0, |at| at + 1)
    }

    fn and(self, later: SetAttributes) -> SetAttributes {
        SetAttributes {
            owner: later.owner.or(self.owner),
            mode: later.mode.or(self.mode),
            times: later.times.or(self.times),
        }
    }

    /// Returns the attribute set by a command, and its file. Returns None for other commands.
    pub(super) fn of<'c>(
        command: &Command<'c>,
    ) -> Result<Option<(TreePath<'c>, SetAttributes)>, CommandFault> {
        let nothing = SetAttributes::default();
        let (path, set) = match *command {
            Command::Chown { path, uid, gid } => {
                let owner = Some(owner(uid, gid)?);
                (path, SetAttributes { owner, ..nothing })
            }
            Command::Chmod { path, mode } => {
                if mode & !(TYPE | PERMISSIONS) != 0 {
                    let what = "mode";
                    return Err(CommandFault::Mode { what, value: mode });
                }
                let mode = Some((mode & PERMISSIONS) as u32);
                (path, SetAttributes { mode, ..nothing })
            }
            Command::Utimes {
                path, atime, mtime, ..
            } => {
                let times = Some((time(atime)?, time(mtime)?));
                (path, SetAttributes { times, ..nothing })
            }
            _ => return Ok(None),
        };
        Ok(Some((TreePath::new(path)?, set)))
    }
}

impl Receiver<'_> {
    /// Defers a command that can be combined with earlier or later ones, or executes it together with a deferred one.
    /// Returns false if it must be executed separately.
    pub(super) fn defer(&mut self, command: &Command<'_>, offset: u64) -> bool {
        let current = self.current.as_ref().filter(|current| current.is_begun);
        let (Some(current), Some(kind)) = (current, command.kind()) else {
            return false;
        };
        let deferred = &mut self.deferred;
        let is_done = match *command {
            Command::Mkfile { path, .. } if deferred.is_empty() => {
                deferred.make(path, kind, offset, NewFile::File)
            }
            Command::Mkdir { path, .. } if deferred.is_empty() => {
                deferred.make(path, kind, offset, NewFile::Directory)
            }
            Command::Rename { path, to } => {
                let target = &mut *self.target;
                deferred.rename(path, to, offset, |from, to, new| {
                    target.create_renamed(from, to, new).ok()
                })
            }
            Command::Write {
                path,
                offset: 0,
                data,
            } => deferred.write(path, data, offset),
            // An invalid command fails later, when it is executed.
            _ => match SetAttributes::of(command) {
                Ok(Some((path, set))) => deferred.set(path, (kind, offset, set)),
                _ => false,
            },
        };
        if is_done {
            report(&mut self.watch, &current.name, command);
        }
        is_done
    }

    /// Executes the deferred commands.
    pub(super) fn run_deferred(&mut self, failed: &mut u64) -> Result<(), ReceiveFault> {
        // DEFERRED-1
        let Deferred {
            path,
            made,
            commands,
            data,
        } = &mut self.deferred;
        let made = made.take();
        if made.is_none() && commands.is_empty() {
            return Ok(());
        }
        let (path, mut commands) = (std::mem::take(path), std::mem::take(commands));
        let data = std::mem::take(data);
        let done = self.do_together(&path, made.as_ref(), &data, &commands, failed);
        commands.clear();
        // Keeps the buffers for later commands.
        self.deferred.path = path;
        self.deferred.commands = commands;
        self.deferred.data = data;
        done
    }

    fn do_together(
        &mut self,
        path: &[u8],
        made: Option<&Made>,
        data: &[u8],
        commands: &[(CommandKind, u64, SetAttributes)],
        failed: &mut u64,
    ) -> Result<(), ReceiveFault> {
        let sets = commands.iter().map(|(.., set)| *set);
        let all = sets.fold(SetAttributes::default(), SetAttributes::and);
        if let Some(made) = made {
            let data = if made.written.is_some() { data } else { b"" };
            if self.make_filled(path, made, data, &all) {
                return Ok(());
            }
            self.make(path, made, data, failed)?;
        }
        let mut faults = Vec::new();
        match (self.set_attributes(path, &all), commands) {
            (_, []) | (Ok(()), _) => {}
            (Err(fault), [only]) => faults.push((only, fault)),
            // DEFERRED-2
            (Err(_), several) => {
                for one in several {
                    if let Err(fault) = self.set_attributes(path, &one.2) {
                        faults.push((one, fault));
                    }
                }
            }
        }
        for (&(command, offset, _), fault) in faults {
            let of = Failed {
                command,
                offset,
                path: Some(path.to_vec()),
            };
            self.fail(of, fault, failed)?;
        }
        Ok(())
    }

    /// Creates a file with its data and attributes in one operation of the target. Returns false, with no changes, if
    /// that is impossible.
    fn make_filled(&mut self, path: &[u8], made: &Made, data: &[u8], set: &SetAttributes) -> bool {
        if made.new != NewFile::File {
            return false;
        }
        let first = made.renamed.as_ref().map_or(path, |(first, _)| first);
        let (Ok(first), Ok(path)) = (TreePath::below_root(first), TreePath::below_root(path))
        else {
            return false;
        };
        // DEFERRED-2: an error occurs again in the separate commands.
        let is_made = self.target.create_filled(first, path, data, set);
        is_made.is_ok_and(|is_made| is_made)
    }

    /// Creates a file, renames it and writes to it, in separate operations.
    fn make(
        &mut self,
        path: &[u8],
        made: &Made,
        data: &[u8],
        failed: &mut u64,
    ) -> Result<(), ReceiveFault> {
        let first = made.renamed.as_ref().map_or(path, |(first, _)| first);
        let of = |command, offset, path: &[u8]| Failed {
            command,
            offset,
            path: Some(path.to_vec()),
        };
        let is_renamed = made.renamed.is_some() && self.create_renamed(first, path, &made.new);
        if !is_renamed && let Err(fault) = self.create(first, &made.new) {
            self.fail(of(made.command, made.offset, first), fault, failed)?;
        }
        if let Some((first, offset)) = &made.renamed
            && !is_renamed
            && let Err(fault) = self.rename(first, path)
        {
            self.fail(of(CommandKind::Rename, *offset, first), fault, failed)?;
        }
        if let Some(offset) = made.written
            && let Err(fault) = self.write(path, data)
        {
            self.fail(of(CommandKind::Write, offset, path), fault, failed)?;
        }
        Ok(())
    }

    fn create(&mut self, path: &[u8], new: &NewFile<'_>) -> Result<(), CommandFault> {
        Ok(self.target.create(TreePath::below_root(path)?, new)?)
    }

    fn create_renamed(&mut self, path: &[u8], to: &[u8], new: &NewFile<'_>) -> bool {
        let paths = (TreePath::below_root(path), TreePath::below_root(to));
        let (Ok(path), Ok(to)) = paths else {
            return false;
        };
        let is_made = self.target.create_renamed(path, to, new);
        is_made.is_ok_and(|is_made| is_made)
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) -> Result<(), CommandFault> {
        let (path, to) = (TreePath::below_root(path)?, TreePath::below_root(to)?);
        Ok(self.target.rename(path, to)?)
    }

    fn write(&mut self, path: &[u8], data: &[u8]) -> Result<(), CommandFault> {
        Ok(self.target.write(TreePath::below_root(path)?, 0, data)?)
    }

    fn set_attributes(&mut self, path: &[u8], set: &SetAttributes) -> Result<(), CommandFault> {
        Ok(self.target.set_attributes(TreePath::new(path)?, set)?)
    }
}

/// Converts user and group ids. Rejects the highest id, because it means "no change" in chown.
fn owner(uid: u64, gid: u64) -> Result<(u32, u32), CommandFault> {
    let number = |id: u64| u32::try_from(id).ok().filter(|&id| id != u32::MAX);
    number(uid)
        .zip(number(gid))
        .ok_or(CommandFault::Owner { uid, gid })
}

/// Checks a time of a stream.
fn time(time: FileTime) -> Result<FileTime, CommandFault> {
    match time.nsec {
        0..1_000_000_000 => Ok(time),
        nsec => Err(CommandFault::Time(nsec)),
    }
}

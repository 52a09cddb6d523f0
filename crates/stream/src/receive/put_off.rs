//! Commands that are put off, as the next one may be done together with them.
//!
//! - Owner, mode and times: a sender ends a file with these three commands.
//! - Making a file or directory: the kernel makes it under a passing name, and renames it.
//!
//! Each command alone would be a change of the volume.
//!
//! Invariants
//! - PUT-OFF-1: what was put off is done before anything else is, and before the subvolume is finished.
//! - PUT-OFF-2: an error names the command that failed. If several fail as one, they are done one by one.

use ubtrfs_engine::FileTime;

use super::error::{CommandFault, ReceiveFault};
use super::path::TreePath;
use super::target::{NewFile, SetAttributes};
use super::{Failed, Receiver};
use crate::format::{Command, CommandKind, Time};

const TYPE: u64 = 0o170_000;
const PERMISSIONS: u64 = 0o7777;

/// Commands about one file that were judged, and are yet to be done.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    path: Vec<u8>,
    /// The file is to be made; then nothing else is put off.
    made: Option<(CommandKind, u64, NewFile<'static>)>,
    /// Each with its place in the stream, in the order of [`SetAttributes`]. None if nothing is put off.
    commands: Vec<(CommandKind, u64, SetAttributes)>,
}

impl PutOff {
    /// Notes that a file is to be made. False for a path that no file can have.
    fn make(&mut self, path: &[u8], made: (CommandKind, u64, NewFile<'static>)) -> bool {
        let Ok(path) = TreePath::below_root(path) else {
            return false;
        };
        self.name(path);
        self.made = Some(made);
        true
    }

    /// Has the file that is to be made at `path` made under another name by `create`, if that can be.
    fn make_renamed(
        &mut self,
        path: &[u8],
        create: impl FnOnce(TreePath<'_>, &NewFile<'_>) -> Option<bool>,
    ) -> bool {
        let (Some((.., new)), Ok(path)) = (&self.made, TreePath::below_root(path)) else {
            return false;
        };
        let is_made = self.path == path.as_bytes() && create(path, new) == Some(true);
        if is_made {
            self.made = None;
        }
        is_made
    }

    /// Notes an attribute that can be set together with those before: later in the order, and of the file of these.
    fn set(&mut self, path: TreePath<'_>, command: (CommandKind, u64, SetAttributes)) -> bool {
        let last = self.commands.last();
        let is_next = last.is_none_or(|(.., before)| {
            self.path == path.as_bytes() && before.rank() < command.2.rank()
        });
        if self.made.is_some() || !is_next {
            return false;
        }
        if self.commands.is_empty() {
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
    /// Where the last one that is set stands in the order.
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

    /// What a command sets, and of which file. None for a command that is about something else.
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
    /// Notes a command that can be done together with those before or after it, or does it together with that before.
    /// False if it is to be done by itself.
    pub(super) fn put_off(&mut self, command: &Command<'_>, offset: u64) -> bool {
        let current = self.current.as_ref().filter(|current| current.is_begun);
        let (Some(current), Some(kind)) = (current, command.kind()) else {
            return false;
        };
        let put_off = &mut self.put_off;
        let is_free = put_off.made.is_none() && put_off.commands.is_empty();
        let is_done = match *command {
            Command::Mkfile { path, .. } if is_free => {
                put_off.make(path, (kind, offset, NewFile::File))
            }
            Command::Mkdir { path, .. } if is_free => {
                put_off.make(path, (kind, offset, NewFile::Directory))
            }
            Command::Rename { path, to } => {
                let target = &mut *self.target;
                put_off.make_renamed(path, |from, new| {
                    let to = TreePath::below_root(to).ok()?;
                    target.create_renamed(from, to, new).ok()
                })
            }
            // An unsound one is told when it is its turn.
            _ => match SetAttributes::of(command) {
                Ok(Some((path, set))) => put_off.set(path, (kind, offset, set)),
                _ => false,
            },
        };
        if is_done {
            self.observer.begin(&current.name, command);
        }
        is_done
    }

    /// Does what was put off.
    pub(super) fn do_put_off(&mut self, failed: &mut u64) -> Result<(), ReceiveFault> {
        // PUT-OFF-1
        if let Some((command, offset, new)) = self.put_off.made.take() {
            let path = self.put_off.path.as_slice();
            let made = TreePath::below_root(path).map_err(CommandFault::from);
            let made = made.and_then(|path| Ok(self.target.create(path, &new)?));
            return match made {
                Ok(()) => Ok(()),
                Err(fault) => {
                    let path = Some(path.to_vec());
                    self.fail(
                        Failed {
                            command,
                            offset,
                            path,
                        },
                        fault,
                        failed,
                    )
                }
            };
        }
        if self.put_off.commands.is_empty() {
            return Ok(());
        }
        let commands = std::mem::take(&mut self.put_off.commands);
        let sets = commands.iter().map(|(.., set)| *set);
        let all = sets.fold(SetAttributes::default(), SetAttributes::and);
        let mut faults = Vec::new();
        match (self.set_attributes(&all), commands.as_slice()) {
            (Ok(()), _) => {}
            (Err(fault), [only]) => faults.push((only, fault)),
            // PUT-OFF-2
            (Err(_), several) => {
                for one in several {
                    if let Err(fault) = self.set_attributes(&one.2) {
                        faults.push((one, fault));
                    }
                }
            }
        }
        for (&(command, offset, _), fault) in faults {
            let path = Some(self.put_off.path.clone());
            self.fail(
                Failed {
                    command,
                    offset,
                    path,
                },
                fault,
                failed,
            )?;
        }
        Ok(())
    }

    fn set_attributes(&mut self, set: &SetAttributes) -> Result<(), CommandFault> {
        let path = TreePath::new(&self.put_off.path)?;
        Ok(self.target.set_attributes(path, set)?)
    }
}

/// The highest number means none, to who changes owners.
fn owner(uid: u64, gid: u64) -> Result<(u32, u32), CommandFault> {
    let number = |id: u64| u32::try_from(id).ok().filter(|&id| id != u32::MAX);
    number(uid)
        .zip(number(gid))
        .ok_or(CommandFault::Owner { uid, gid })
}

fn time(time: Time) -> Result<FileTime, CommandFault> {
    match time.nsec {
        0..1_000_000_000 => Ok(FileTime {
            sec: time.sec,
            nsec: time.nsec,
        }),
        nsec => Err(CommandFault::Time(nsec)),
    }
}

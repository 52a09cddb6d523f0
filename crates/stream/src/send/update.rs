//! Updating one inode: its names at the receiver, and its attributes.
//!
//! Not here: its data (`data`), extended attributes (`xattrs`).

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::FileKind;
use ubtrfs_fs::FileId;

use super::error::{CorruptFile, Result};
use super::file_tree::{Inode, Name, ROOT_DIR};
use super::inode_update::{FileData, Update};
use super::job::Job;
use super::receiver::Dir;
use crate::format::{Command, StreamVersion};

/// Settable bits of a mode.
const PERMISSIONS: u32 = 0o7777;
/// Set-user-ID and set-group-ID, which chown clears.
const SET_IDS: u32 = 0o6000;

pub(super) fn utimes<'p>(path: &'p [u8], inode: &Inode) -> Command<'p> {
    let item = &inode.item;
    Command::Utimes {
        path,
        atime: item.atime.into(),
        mtime: item.mtime.into(),
        ctime: item.ctime.into(),
        otime: Some(item.otime.into()),
    }
}

/// Converts the device number of an inode item to the kernel's 32-bit encoding.
fn encoded_device(rdev: u64) -> u64 {
    let (major, minor) = (rdev >> 20, rdev & 0xf_ffff);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

impl Job<'_> {
    /// Sends the names of an inode, and creates it if it does not exist at the receiver.
    pub(super) fn begin_update(
        &mut self,
        ino: u64,
        before: Option<Inode>,
        after: Inode,
    ) -> Result<Update> {
        let path = match (after.is_dir(), before) {
            (true, _) => {
                if ino != ROOT_DIR && self.old.is_none() {
                    self.place(ino)?;
                }
                self.dir_path(Dir::New(ino))?
            }
            (false, Some(_)) => self.rename(ino)?,
            (false, None) => self.create(ino, &after)?,
        };
        let sizes = (before.map_or(0, |before| before.size()), after.size());
        Ok(Update {
            ino,
            before,
            after,
            path,
            data: FileData::new(sizes.0, sizes.1),
            capability: None,
        })
    }

    /// Creates a non-directory with all of its names.
    fn create(&mut self, ino: u64, inode: &Inode) -> Result<Vec<u8>> {
        let names = self.new.names(ino)?;
        let Some((first, others)) = names.split_first() else {
            return Err(self.new.corrupt(ino, CorruptFile::NoName));
        };
        let path = self.free_path(first)?;
        self.clear_inheritable(first.dir)?;
        self.make(ino, inode, &path)?;
        self.add_links(others, &path)?;
        Ok(path)
    }

    /// Sends further names of the file at `existing`.
    fn add_links<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n Name>,
        existing: &[u8],
    ) -> Result<()> {
        for name in names {
            let path = &self.free_path(name)?;
            self.write(&Command::Link { path, existing })?;
        }
        Ok(())
    }

    /// Frees a name at the receiver, and returns its path.
    fn free_path(&mut self, name: &Name) -> Result<Vec<u8>> {
        match self.old {
            None => self.place(name.dir)?,
            Some(_) => self.vacate_name(name)?,
        }
        self.new_path(name)
    }

    fn make(&mut self, ino: u64, inode: &Inode, path: &[u8]) -> Result<()> {
        let ino = InodeNr(ino);
        let rdev = encoded_device(inode.item.rdev.get());
        let mode = inode.item.mode.get().into();
        let target;
        self.write(&match inode.kind {
            FileKind::Symlink => {
                let id = FileId::new(self.new.snapshot.id(), ino);
                target = self.new.snapshot.volume().readlink(id)?;
                let target = &target;
                Command::Symlink { path, ino, target }
            }
            FileKind::CharDevice | FileKind::BlockDevice => Command::Mknod {
                path,
                ino,
                rdev,
                mode,
            },
            FileKind::Fifo => Command::Mkfifo {
                path,
                ino,
                rdev,
                mode,
            },
            FileKind::Socket => Command::Mksock {
                path,
                ino,
                rdev,
                mode,
            },
            FileKind::Regular | FileKind::Directory => Command::Mkfile { path, ino },
        })
    }

    /// Sends the new names of an existing non-directory. All of its old names are removed, except for one if none is
    /// kept.
    fn rename(&mut self, ino: u64) -> Result<Vec<u8>> {
        let plan = self.name_plan(ino)?;
        let mut added = plan.added.iter();
        let path = match (plan.kept.first(), plan.carrier(), plan.added.first()) {
            (Some(kept), ..) => self.new_path(kept)?,
            (None, Some(carrier), Some(first)) => {
                // The first new name replaces the carrier by a rename; the others become links.
                added.next();
                self.vacate_name(first)?;
                let lifted = self.reach_carrier(ino, carrier)?;
                let path = &self.carried_path(ino, carrier)?;
                let to = &self.new_path(first)?;
                self.write(&Command::Rename { path, to })?;
                self.forget_aside(ino)?;
                self.put_back(lifted)?;
                self.new_path(first)?
            }
            _ => return Err(self.new.corrupt(ino, CorruptFile::NoName)),
        };
        self.add_links(added, &path)?;
        Ok(path)
    }

    /// Sends everything that must follow the items: remaining data, and attributes that other commands change.
    pub(super) fn finish_update(&mut self, mut update: Update) -> Result<()> {
        self.finish_data(&mut update)?;
        self.set_owner_and_mode(&mut update)?;
        self.set_capability(&mut update)?;
        self.set_file_times(&update)
    }

    fn set_owner_and_mode(&mut self, update: &mut Update) -> Result<()> {
        let path = &update.path;
        let (before, after) = (update.before.map(|before| before.item), update.after.item);
        let owner_differs =
            before.is_none_or(|before| (before.uid, before.gid) != (after.uid, after.gid));
        if owner_differs {
            self.write(&Command::Chown {
                path,
                uid: after.uid.get().into(),
                gid: after.gid.get().into(),
            })?;
            update.data.clears_capability = true;
        }
        let mode = after.mode.get();
        let mode_differs = before.is_none_or(|before| before.mode != after.mode);
        let was_cleared = owner_differs && mode & SET_IDS != 0;
        if update.after.kind != FileKind::Symlink && (mode_differs || was_cleared) {
            self.write(&Command::Chmod {
                path,
                mode: (mode & PERMISSIONS).into(),
            })?;
        }
        let flags_differ = before.is_some_and(|before| before.flags != after.flags);
        let knows_flags = self.options.version >= StreamVersion::V2;
        if flags_differ && knows_flags && update.after.kind != FileKind::Symlink {
            let flags = after.flags.get();
            self.write(&Command::Fileattr { path, flags })?;
        }
        Ok(())
    }

    /// Sets the times of a non-directory. Times of directories are set after the last change in them.
    fn set_file_times(&mut self, update: &Update) -> Result<()> {
        let (before, after) = (update.before.map(|before| before.item), update.after.item);
        let differ =
            before.is_none_or(|before| (before.atime, before.mtime) != (after.atime, after.mtime));
        if !update.after.is_dir() && (differ || update.data.is_touched) {
            self.write(&utimes(&update.path, &update.after))
        } else {
            Ok(())
        }
    }
}

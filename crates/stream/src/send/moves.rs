//! Paths at the receiver, and the moves of directories to their new places.
//!
//! Invariants
//! - RECEIVER-1: a directory is placed only after all its ancestors in the new snapshot. So no move creates a loop.
//! - RECEIVER-2: a needed name that is still in use is freed by moving the other inode aside.

use ubtrfs_format::ids::InodeNr;

use super::error::{CorruptFile, Result};
use super::file_tree::{Inode, MAX_PATH_BYTES, Name, ROOT_DIR};
use super::job::Job;
use super::receiver::{Dir, DirPlace, Progress};
use super::spilled::InodeSet;
use crate::format::Command;

/// Maximum depth: paths are shorter than 4,096 bytes.
pub(super) const MAX_DEPTH: usize = 2048;
/// Maximum number of cached directory paths.
const MAX_KNOWN_PATHS: usize = 4096;
/// Maximum number of remembered directories that need no further moves.
const MAX_PLACED_WITH_PARENTS: usize = 1 << 16;

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}

impl Job<'_> {
    /// Returns whether a directory of the new snapshot is at its final place.
    pub(super) fn is_placed(&mut self, dir: u64) -> Result<bool> {
        if dir == ROOT_DIR || self.receiver.had_its_turn(dir)? {
            return Ok(true);
        }
        if self.receiver.progress == Progress::Removing {
            return Ok(false);
        }
        Ok(self.is_kept_dir(dir)? && !self.receiver.moved.contains(dir)?)
    }

    /// Returns the current location of a directory at the receiver.
    pub(super) fn place_of(&mut self, dir: Dir) -> Result<DirPlace> {
        let (Dir::New(ino) | Dir::Gone(ino)) = dir;
        let is_placed = matches!(dir, Dir::New(_)) && self.is_placed(ino)?;
        let aside = if is_placed {
            self.receiver.lifted.get(&ino).cloned()
        } else {
            self.name_aside(ino)?
        };
        if let Some(orphan) = aside {
            return Ok(DirPlace::Aside(orphan));
        }
        if let (false, Some(old)) = (is_placed, self.old) {
            let Name { dir, name } = old.first_name(ino)?;
            return Ok(DirPlace::In(self.old_dir(dir)?, name));
        }
        self.new.check_dir(ino)?;
        let Name { dir, name } = self.new.first_name(ino)?;
        Ok(DirPlace::In(Dir::New(dir), name))
    }

    /// Returns the current path of a directory at the receiver.
    pub(super) fn dir_path(&mut self, dir: Dir) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = dir;
        let mut head = Vec::new();
        while at != Dir::New(ROOT_DIR) {
            if let Some(path) = self.receiver.paths.get(&at) {
                head.clone_from(path);
                break;
            }
            let (Dir::New(ino) | Dir::Gone(ino)) = at;
            if names.len() >= MAX_DEPTH {
                return Err(self.new.corrupt(ino, CorruptFile::Loop));
            }
            match self.place_of(at)? {
                DirPlace::Aside(path) => {
                    head = path;
                    break;
                }
                DirPlace::In(dir, name) => {
                    names.push(name);
                    at = dir;
                }
            }
        }
        let path = names
            .iter()
            .rev()
            .fold(head, |path, name| join(&path, name));
        if path.len() > MAX_PATH_BYTES {
            let (Dir::New(ino) | Dir::Gone(ino)) = dir;
            return Err(self.new.corrupt(ino, CorruptFile::PathTooLong));
        }
        if self.receiver.paths.len() >= MAX_KNOWN_PATHS {
            self.receiver.forget_paths();
        }
        self.receiver.paths.insert(dir, path.clone());
        Ok(path)
    }

    /// Returns the path of a name in the new snapshot.
    pub(super) fn new_path(&mut self, name: &Name) -> Result<Vec<u8>> {
        let dir = self.dir_path(Dir::New(name.dir))?;
        self.checked(name, &dir)
    }

    /// Returns the current path of a name in the old snapshot.
    pub(super) fn old_path(&mut self, name: &Name) -> Result<Vec<u8>> {
        let dir = self.old_dir(name.dir)?;
        let dir = self.dir_path(dir)?;
        self.checked(name, &dir)
    }

    fn checked(&self, name: &Name, dir: &[u8]) -> Result<Vec<u8>> {
        let path = join(dir, &name.name);
        if path.len() > MAX_PATH_BYTES {
            Err(self.new.corrupt(name.dir, CorruptFile::PathTooLong))
        } else {
            Ok(path)
        }
    }

    /// Returns the path of an inode with the old name `carrier` and no new name yet.
    pub(super) fn carried_path(&mut self, ino: u64, carrier: &Name) -> Result<Vec<u8>> {
        match self.name_aside(ino)? {
            Some(orphan) => Ok(orphan),
            None => self.old_path(carrier),
        }
    }

    /// Returns the name in the root directory of an inode that was moved aside.
    fn name_aside(&mut self, ino: u64) -> Result<Option<Vec<u8>>> {
        let Some(old) = self.old else {
            return Ok(None);
        };
        if !self.receiver.is_aside(ino)? {
            return Ok(None);
        }
        match old.inode(ino)? {
            Some(inode) => Ok(Some(self.free_name(ino, inode.generation())?)),
            None => Ok(None),
        }
    }

    /// Removes the mark of an inode that was aside and has a name again.
    pub(super) fn forget_aside(&mut self, ino: u64) -> Result<()> {
        Ok(self.receiver.asides.remove(ino)?)
    }

    /// Places a directory of the new snapshot, after all of its parents.
    pub(super) fn place(&mut self, dir: u64) -> Result<()> {
        let mut above = Vec::new();
        let mut at = dir;
        let mut depth = 0;
        // This includes parents of directories that are not moved themselves.
        while at != ROOT_DIR && !self.receiver.placed_with_parents.contains(&at) {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(self.new.corrupt(dir, CorruptFile::Loop));
            }
            let name = self.new.first_name(at)?;
            let parent = name.dir;
            above.push((at, name));
            at = parent;
        }
        // RECEIVER-1
        while let Some((ino, name)) = above.pop() {
            if !self.is_placed(ino)? {
                self.place_one(ino, &name)?;
            }
            if self.receiver.placed_with_parents.len() >= MAX_PLACED_WITH_PARENTS {
                self.receiver.placed_with_parents.clear();
            }
            self.receiver.placed_with_parents.insert(ino);
        }
        Ok(())
    }

    fn place_one(&mut self, ino: u64, name: &Name) -> Result<()> {
        self.vacate_name(name)?;
        if !self.is_kept_dir(ino)? {
            // The new directory would inherit the parent's attributes.
            self.clear_inheritable(name.dir)?;
            let to = self.new_path(name)?;
            let ino = InodeNr(ino);
            self.write(&Command::Mkdir { path: &to, ino })?;
        } else {
            let lifted = self.reach(Dir::New(ino), 0)?;
            let (path, to) = (self.dir_path(Dir::New(ino))?, self.new_path(name)?);
            self.write(&Command::Rename {
                path: &path,
                to: &to,
            })?;
            self.forget_aside(ino)?;
            self.receiver.forget_paths();
            self.put_back(lifted)?;
        }
        self.receiver.early.insert(ino)?;
        Ok(())
    }

    /// Ends the turn of a directory, or of any inode in a full send.
    pub(super) fn finish_turn(&mut self, ino: u64) {
        self.receiver.progress = Progress::Placing(ino + 1);
    }

    /// Starts naming inodes after all directories are placed.
    pub(super) fn begin_naming(&mut self) {
        self.receiver.progress = Progress::Naming(0);
        self.receiver.early = InodeSet::new(&self.scratch_dir);
        self.receiver.forget_paths();
    }

    /// Ensures that no inode at the receiver occupies a name that is needed for the new snapshot.
    pub(super) fn vacate_name(&mut self, name: &Name) -> Result<()> {
        let Some(old) = self.old else {
            return Ok(());
        };
        if !self.is_kept_dir(name.dir)? {
            return Ok(());
        }
        let Some(ino) = old.entry(name.dir, &name.name)? else {
            return Ok(());
        };
        if self.receiver.is_aside(ino)? {
            return Ok(());
        }
        let Some(holder) = old.inode(ino)? else {
            return Ok(());
        };
        let in_the_way = if holder.is_dir() {
            !self.is_kept_dir(ino)? || !self.is_placed(ino)?
        } else {
            self.is_carried_by(ino, &holder, name)?
        };
        if in_the_way {
            // RECEIVER-2
            let dir = self.old_dir(name.dir)?;
            let lifted = self.reach(dir, name.name.len())?;
            let path = self.old_path(name)?;
            self.move_aside(ino, &holder, &path)?;
            self.put_back(lifted)?;
        }
        Ok(())
    }

    /// Returns whether this old name is the last remaining name of a non-directory.
    fn is_carried_by(&mut self, ino: u64, holder: &Inode, name: &Name) -> Result<bool> {
        if let Progress::Naming(turn) = self.receiver.progress
            && ino < turn
        {
            return Ok(false);
        }
        let is_known = |(of, _): &(u64, Option<Name>)| *of == ino;
        if !self.receiver.carrier.as_ref().is_some_and(is_known) {
            let after = self.new.inode(ino)?;
            let carrier = if self.is_kept(ino, Some(*holder), after)? {
                self.name_plan(ino)?.carrier().cloned()
            } else {
                None
            };
            self.receiver.carrier = Some((ino, carrier));
        }
        let known = self.receiver.carrier.as_ref();
        Ok(known.is_some_and(|(_, carrier)| carrier.as_ref() == Some(name)))
    }

    pub(super) fn move_aside(&mut self, ino: u64, inode: &Inode, path: &[u8]) -> Result<()> {
        let orphan = self.free_name(ino, inode.generation())?;
        self.write(&Command::Rename { path, to: &orphan })?;
        self.receiver.asides.insert(ino)?;
        self.receiver.touched.add(ROOT_DIR)?;
        if inode.is_dir() {
            self.receiver.forget_paths();
        }
        Ok(())
    }

    /// Finds a name that is unused in the root directories of both snapshots.
    pub(super) fn free_name(&self, ino: u64, generation: u64) -> Result<Vec<u8>> {
        let mut number = 0u64;
        loop {
            let name = format!("o{ino}-{generation}-{number}").into_bytes();
            let in_old = match self.old {
                Some(old) => old.location(ROOT_DIR, &name)?.is_some(),
                None => false,
            };
            if !in_old && self.new.location(ROOT_DIR, &name)?.is_none() {
                return Ok(name);
            }
            number += 1;
        }
    }
}

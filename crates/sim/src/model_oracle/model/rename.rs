//! Renames: with replacement, exchange, whiteout, and between subvolumes.

use super::inode::{Body, Inode, InodeId, Target};
use super::lookup::Found;
use super::subvolume::Place;
use super::{ModelFs, OpResult};
use crate::vocabulary::{FsPath, Node, OpError, Outcome, RenameHow};

/// One of the two names of a rename.
#[derive(Clone, Copy)]
struct Side<'p> {
    dir: InodeId,
    name: &'p [u8],
}

impl ModelFs {
    pub(super) fn rename(&mut self, from: &FsPath, to: &FsPath, how: RenameHow) -> OpResult {
        let source_parent = self.parent(from)?;
        let target_parent = self.parent(to)?;
        let (old, new) = (side(source_parent), side(target_parent));
        let source = self.lookup(old.dir, old.name)?.ok_or(OpError::NotFound)?;
        let target = self.lookup(new.dir, new.name)?;
        match (how, target) {
            (RenameHow::NoReplace, Some(_)) => return Err(OpError::Exists),
            (RenameHow::Exchange, None) => return Err(OpError::NotFound),
            _ => {}
        }
        self.refuse_loop(from, to, how)?;
        let is_one_place = (old.dir, old.name) == (new.dir, new.name);
        if is_one_place || matches!(source, Found::Inode(_)) && target == Some(source) {
            return Ok(Outcome::Done);
        }

        let source_is_dir = self.is_dir(source);
        self.may_delete(old.dir, source, source_is_dir)?;
        match target {
            None => self.may_change_names(new.dir)?,
            Some(target) if how == RenameHow::Exchange => {
                self.may_delete(new.dir, target, self.is_dir(target))?;
            }
            Some(target) => self.may_delete(new.dir, target, source_is_dir)?,
        }
        if old.dir != new.dir {
            self.may_move(source)?;
            if let (RenameHow::Exchange, Some(target)) = (how, target) {
                self.may_move(target)?;
            }
        }
        match (how, target) {
            (RenameHow::Exchange, Some(target)) => self.exchange(old, source, new, target),
            _ => self.replace(old, source, new, target, how),
        }
    }

    /// Rejects loops. A directory may neither move below itself nor replace one of its ancestors.
    fn refuse_loop(&self, from: &FsPath, to: &FsPath, how: RenameHow) -> Result<(), OpError> {
        let above = |path: &FsPath| {
            let mut chain = self.chain(path);
            chain.truncate(path.names().count());
            chain
        };
        let is_above = |path: &FsPath, other: &FsPath| match self.find(path) {
            Ok(found @ Found::Inode(_)) => above(other).contains(&found),
            _ => false,
        };
        if is_above(from, to) {
            return Err(OpError::Loop);
        }
        match (is_above(to, from), how) {
            (false, _) => Ok(()),
            (true, RenameHow::Exchange) => Err(OpError::Loop),
            (true, _) => Err(OpError::NotEmpty),
        }
    }

    /// Checks that an inode may move. A directory that changes its parent must itself be writable.
    fn may_move(&self, found: Found) -> Result<(), OpError> {
        match found {
            Found::Inode(id) if self.inode(id).is_dir() => self.may_write(id),
            _ => Ok(()),
        }
    }

    fn replace(
        &mut self,
        old: Side<'_>,
        source: Found,
        new: Side<'_>,
        target: Option<Found>,
        how: RenameHow,
    ) -> OpResult {
        if old.dir.subvolume != new.dir.subvolume && !is_subvolume(source) {
            return Err(OpError::CrossSubvolume);
        }
        if source == Found::EmptySubvolumeDir || target.is_some_and(is_subvolume) {
            return Err(OpError::NotEmpty);
        }
        if let (true, Some(target)) = (self.is_dir(source), target) {
            self.refuse_filled(target)?;
        }
        if let Some(target) = target {
            self.remove_name(new.dir, new.name, target);
        }
        self.inode_mut(old.dir).dir_mut().remove(old.name);
        self.put(new, source);
        if how == RenameHow::Whiteout {
            let mut whiteout = Inode::new(0, Body::Special(Node::CharDevice(0, 0)));
            self.inode(old.dir).hand_on(&mut whiteout);
            self.add_inode(old.dir, old.name, whiteout);
        }
        Ok(Outcome::Done)
    }

    fn exchange(&mut self, old: Side<'_>, source: Found, new: Side<'_>, target: Found) -> OpResult {
        if source == Found::EmptySubvolumeDir || target == Found::EmptySubvolumeDir {
            return Err(OpError::OutOfScope);
        }
        let both_subvolumes = is_subvolume(source) && is_subvolume(target);
        if old.dir.subvolume != new.dir.subvolume && !both_subvolumes {
            return Err(OpError::CrossSubvolume);
        }
        self.inode_mut(old.dir).dir_mut().remove(old.name);
        self.inode_mut(new.dir).dir_mut().remove(new.name);
        self.put(new, source);
        self.put(old, target);
        Ok(Outcome::Done)
    }

    fn put(&mut self, at: Side<'_>, found: Found) {
        let Found::Inode(id) = found else {
            return;
        };
        let mut target = Target::Inode(id.ino);
        if id.is_subvolume() {
            target = Target::Subvolume(id.subvolume);
            self.subvolume_mut(id.subvolume).place = Some(Place {
                dir: at.dir,
                name: at.name.to_vec(),
            });
        }
        self.inode_mut(at.dir).dir_mut().insert(at.name, target);
    }
}

fn side<'p>((dir, name): (InodeId, &'p [u8])) -> Side<'p> {
    Side { dir, name }
}

fn is_subvolume(found: Found) -> bool {
    matches!(found, Found::Inode(id) if id.is_subvolume())
}

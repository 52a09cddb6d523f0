//! The state shared by the phases of a send: both snapshots, the receiver's state, and the stream.

use std::collections::HashMap;

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_spill::ScratchDir;
use ubtrfs_tree::{Difference, Item};

use super::clones::Clones;
use super::error::Result;
use super::file_tree::{FileTree, Inode, Name, ROOT_DIR};
use super::inherited::Inherited;
use super::receiver::{Dir, Receiver};
use super::{CommandSink, SendOptions};
use crate::format::Command;
use crate::scratch::scratch_dir;

/// Maximum number of cached results about directories.
const MAX_KNOWN_DIRS: usize = 1 << 16;

pub(super) struct Job<'a> {
    pub(super) new: FileTree<'a>,
    /// None in a full send.
    pub(super) old: Option<FileTree<'a>>,
    pub(super) clones: Clones<'a>,
    pub(super) options: SendOptions,
    pub(super) scratch_dir: ScratchDir,
    pub(super) receiver: Receiver,
    pub(super) inherited: Inherited,
    known_dirs: HashMap<u64, bool>,
    out: &'a mut dyn CommandSink,
}

/// The planned changes of an inode's names.
#[derive(Debug, Default)]
pub(super) struct NamePlan {
    /// Unchanged names.
    pub(super) kept: Vec<Name>,
    pub(super) removed: Vec<Name>,
    pub(super) added: Vec<Name>,
}

impl NamePlan {
    /// Returns the old name under which an inode is reachable until it gets its first new one.
    pub(super) fn carrier(&self) -> Option<&Name> {
        let moves = self.kept.is_empty() && !self.added.is_empty();
        self.removed.first().filter(|_| moves)
    }
}

impl<'a> Job<'a> {
    pub(super) fn new(
        new: FileTree<'a>,
        old: Option<FileTree<'a>>,
        clone_sources: &[FileTree<'a>],
        options: SendOptions,
        out: &'a mut dyn CommandSink,
    ) -> Job<'a> {
        let scratch_dir = scratch_dir(new.snapshot.volume());
        Job {
            new,
            old,
            clones: Clones::new(new, old, clone_sources),
            options,
            receiver: Receiver::new(&scratch_dir),
            inherited: Inherited::new(&scratch_dir),
            scratch_dir,
            known_dirs: HashMap::new(),
            out,
        }
    }

    pub(super) fn write(&mut self, command: &Command<'_>) -> Result<()> {
        Ok(self.out.write(command)?)
    }

    /// Reads an inode in both snapshots, given its first differing item.
    pub(super) fn both_inodes(&self, first: &Difference) -> Result<(Option<Inode>, Option<Inode>)> {
        let key = first.key();
        let ino = key.objectid;
        if key == Key::new(ino, KeyType::INODE_ITEM, 0) {
            let decode = |tree: FileTree<'_>, item: Option<&Item>| {
                item.map_or(Ok(None), |item| tree.decode(ino, item))
            };
            let before = self.old.map(|old| decode(old, first.old_item()));
            let after = decode(self.new, first.new_item())?;
            return Ok((before.transpose()?.flatten(), after));
        }
        let after = self.new.inode(ino)?;
        let before = match self.old {
            // Everything before the first difference is equal.
            Some(_) if key.item_type > KeyType::INODE_ITEM => after,
            Some(old) => old.inode(ino)?,
            None => None,
        };
        Ok((before, after))
    }

    /// Returns whether an inode of both snapshots is the same inode.
    pub(super) fn is_kept(
        &self,
        ino: u64,
        before: Option<Inode>,
        after: Option<Inode>,
    ) -> Result<bool> {
        match (self.old, before, after) {
            (Some(old), Some(before), Some(after)) => {
                Ok(ino == ROOT_DIR || self.new.has_same_inode(ino, &after, &old, &before)?)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether this directory number belongs to the same directory in both snapshots.
    pub(super) fn is_kept_dir(&mut self, ino: u64) -> Result<bool> {
        if ino == ROOT_DIR {
            return Ok(true);
        }
        let Some(old) = self.old else {
            return Ok(false);
        };
        if let Some(&known) = self.known_dirs.get(&ino) {
            return Ok(known);
        }
        let (before, after) = (old.inode(ino)?, self.new.inode(ino)?);
        let is_dir = before.is_some_and(|before| before.is_dir());
        let is_kept = is_dir && self.is_kept(ino, before, after)?;
        if self.known_dirs.len() >= MAX_KNOWN_DIRS {
            self.known_dirs.clear();
        }
        self.known_dirs.insert(ino, is_kept);
        Ok(is_kept)
    }

    /// Returns the directory with this number in the old snapshot.
    pub(super) fn old_dir(&mut self, ino: u64) -> Result<Dir> {
        Ok(if self.is_kept_dir(ino)? {
            Dir::New(ino)
        } else {
            Dir::Gone(ino)
        })
    }

    /// Computes which names of an inode are kept, removed and added.
    pub(super) fn name_plan(&mut self, ino: u64) -> Result<NamePlan> {
        let old = self.old.map_or(Ok(Vec::new()), |old| old.names(ino))?;
        let new = self.new.names(ino)?;
        let mut plan = NamePlan::default();
        let mut known: Vec<&Name> = new.iter().collect();
        known.sort_unstable();
        let mut kept = vec![false; known.len()];
        for name in old {
            // Names are not equal if their directory's number was reused.
            match known.binary_search(&&name) {
                Ok(at) if self.is_kept_dir(name.dir)? => {
                    kept[at] = true;
                    plan.kept.push(name);
                }
                _ => plan.removed.push(name),
            }
        }
        let is_added = |name: &&Name| !known.binary_search(name).is_ok_and(|at| kept[at]);
        plan.added = new.iter().filter(is_added).cloned().collect();
        Ok(plan)
    }
}

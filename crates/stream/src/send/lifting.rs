//! Moving directories out of deep paths: some paths are too long at the receiver, although they are short enough in
//! both snapshots.
//!
//! Moving a directory deeper also moves its contents that are yet to be moved or removed. If their path becomes too
//! long, a directory above them is temporarily moved to the root directory.

use super::error::Result;
use super::file_tree::{MAX_PATH_BYTES, Name, ROOT_DIR};
use super::job::Job;
use super::moves::MAX_DEPTH;
use super::receiver::{Dir, DirPlace};
use crate::format::Command;

/// Directories to move back, in the order in which they were moved out.
pub(super) type Lifted = Vec<u64>;

impl Job<'_> {
    /// Ensures that the path of `dir` plus `below` bytes is short enough.
    pub(super) fn reach(&mut self, dir: Dir, below: usize) -> Result<Lifted> {
        let mut lifted = Lifted::new();
        match self.dir_path(dir) {
            Ok(path) if path.len() + 1 + below <= MAX_PATH_BYTES => return Ok(lifted),
            Ok(_) => {}
            Err(error) if !error.is_long_path() => return Err(error),
            Err(_) => {}
        }
        while let Some(above) = self.deepest_within_reach(dir, below)? {
            let path = self.dir_path(above)?;
            let (Dir::New(ino) | Dir::Gone(ino)) = above;
            let is_placed = matches!(above, Dir::New(_)) && self.is_placed(ino)?;
            let (tree, old) = (self.new, self.old.unwrap_or(self.new));
            let tree = if is_placed { tree } else { old };
            let Some(inode) = tree.inode(ino)? else {
                break;
            };
            if !is_placed {
                // It will be moved or removed later anyway.
                self.move_aside(ino, &inode, &path)?;
                continue;
            }
            let DirPlace::In(Dir::New(parent), _) = self.place_of(above)? else {
                break;
            };
            let orphan = self.free_name(ino, inode.generation())?;
            self.write(&Command::Rename {
                path: &path,
                to: &orphan,
            })?;
            for dir in [ROOT_DIR, parent] {
                self.receiver.touched.add(dir)?;
            }
            self.receiver.lifted.insert(ino, orphan);
            self.receiver.forget_paths();
            lifted.push(ino);
        }
        Ok(lifted)
    }

    /// Makes an inode's carrier name reachable.
    pub(super) fn reach_carrier(&mut self, ino: u64, carrier: &Name) -> Result<Lifted> {
        if self.receiver.is_aside(ino)? {
            return Ok(Lifted::new());
        }
        let dir = self.old_dir(carrier.dir)?;
        self.reach(dir, carrier.name.len())
    }

    pub(super) fn put_back(&mut self, lifted: Lifted) -> Result<()> {
        for ino in lifted.into_iter().rev() {
            let Some(orphan) = self.receiver.lifted.remove(&ino) else {
                continue;
            };
            self.receiver.forget_paths();
            let path = self.dir_path(Dir::New(ino))?;
            self.write(&Command::Rename {
                path: &orphan,
                to: &path,
            })?;
        }
        Ok(())
    }

    /// Finds the deepest directory on the way to `dir` with a short enough path of its own. Returns None if the path
    /// of `dir` is short enough, or if no directory helps.
    fn deepest_within_reach(&mut self, dir: Dir, below: usize) -> Result<Option<Dir>> {
        let mut chain: Vec<(Dir, usize)> = Vec::new();
        let mut at = dir;
        let mut len = 0;
        while at != Dir::New(ROOT_DIR) && chain.len() < MAX_DEPTH {
            match self.place_of(at)? {
                DirPlace::Aside(path) => {
                    chain.push((at, path.len()));
                    break;
                }
                DirPlace::In(above, name) => {
                    chain.push((at, name.len() + 1));
                    at = above;
                }
            }
        }
        let total: usize = chain.iter().map(|(_, bytes)| bytes).sum();
        if total + below < MAX_PATH_BYTES {
            return Ok(None);
        }
        let mut found = None;
        while let Some((dir, bytes)) = chain.pop() {
            len += bytes;
            if len > MAX_PATH_BYTES {
                break;
            }
            found = Some(dir);
        }
        Ok(found)
    }
}

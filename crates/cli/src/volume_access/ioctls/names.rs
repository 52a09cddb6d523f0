//! Names of inodes and subvolumes, for users who may search trees.

use rustix::io::Errno;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{InodeExtrefs, InodeRefs, RootRef};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::FileId;

use super::Asked;

/// More levels than a path can have: subvolumes that contain each other.
const MAX_NESTING: usize = 4096;

impl Asked {
    /// Returns the directories and names of an inode, as stored in the tree.
    pub(crate) fn names_of(&self, file: FileId) -> Result<Vec<(FileId, Vec<u8>)>, Errno> {
        let mut names = Vec::new();
        let from = Key::new(file.ino.0, KeyType::INODE_REF, 0);
        let to = Key::new(file.ino.0, KeyType::INODE_EXTREF, u64::MAX);
        self.search(file.root, from, to, &mut |key, item| {
            let dir = |parent| FileId::new(file.root, InodeNr(parent));
            match key.item_type {
                KeyType::INODE_REF => names
                    .extend(InodeRefs::new(item).map(|name| (dir(key.offset), name.name.to_vec()))),
                KeyType::INODE_EXTREF => names.extend(
                    InodeExtrefs::new(item).map(|name| (dir(name.parent), name.name.to_vec())),
                ),
                _ => {}
            }
        })?;
        Ok(names)
    }

    /// Returns the paths of an inode from the root of its subvolume.
    pub(crate) fn paths_of(&self, file: FileId) -> Result<Vec<Vec<u8>>, Errno> {
        if file.ino == InodeNr::FIRST_FREE {
            return Ok(vec![Vec::new()]);
        }
        let names = self.names_of(file)?;
        let path = |(dir, name)| Ok(joined(&self.directory_path(dir)?, name));
        names.iter().map(|(dir, name)| path((*dir, name))).collect()
    }

    /// Returns the path of a subvolume from `from`, if that contains it. Otherwise returns the path from the
    /// top, and None in place of `from`.
    ///
    /// # Errors
    ///
    /// NOENT: the subvolume does not exist, or has no parent directory.
    pub(crate) fn subvolume_path(
        &self,
        id: RootId,
        from: RootId,
    ) -> Result<(Option<RootId>, Vec<u8>), Errno> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != from && at != RootId::FS_TREE {
            let (dir, name) = self.place_of_subvolume(at)?.ok_or(Errno::NOENT)?;
            names.push(joined(&self.directory_path(dir)?, &name));
            at = dir.root;
            if names.len() > MAX_NESTING {
                return Err(Errno::LOOP);
            }
        }
        names.reverse();
        Ok(((at == from).then_some(from), names.join(&b'/')))
    }

    fn place_of_subvolume(&self, id: RootId) -> Result<Option<(FileId, Vec<u8>)>, Errno> {
        let key = |offset| Key::new(id.0, KeyType::ROOT_BACKREF, offset);
        let mut place = None;
        let (from, to) = (key(0), key(u64::MAX));
        self.search(RootId::ROOT_TREE, from, to, &mut |key, item| {
            if let Some(reference) = RootRef::decode(item) {
                let dir = FileId::new(RootId(key.offset), InodeNr(reference.dirid));
                place = Some((dir, reference.name.to_vec()));
            }
        })?;
        Ok(place)
    }
}

pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [] => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

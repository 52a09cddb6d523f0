//! Subvolumes and snapshots.

use super::inode::{Body, Directory, Inode, InodeId, ROOT_INO, SubvolumeId, Target};
use super::lookup::Found;
use super::{Map, ModelFs, OpResult, TOP};
use crate::vocabulary::{FsPath, OpError, Outcome, Received};

/// The only name of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: InodeId,
    pub(super) name: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Subvolume {
    pub(super) inodes: Map<u64, Inode>,
    next_ino: u64,
    pub(super) read_only: bool,
    received: Received,
    /// None for the top-level subvolume.
    pub(super) place: Option<Place>,
}

impl Subvolume {
    pub(super) fn new(place: Option<Place>) -> Subvolume {
        let root = Inode::new(0o755, Body::Dir(Directory::default()));
        Subvolume {
            inodes: Map::new_sync().insert(ROOT_INO, root),
            next_ino: ROOT_INO + 1,
            read_only: false,
            received: Received::NOTHING,
            place,
        }
    }

    pub(super) fn add(&mut self, inode: Inode) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert_mut(ino, inode);
        ino
    }
}

impl ModelFs {
    pub(super) fn create_subvolume(&mut self, path: &FsPath) -> OpResult {
        let (dir, name) = self.new_name(path)?;
        let place = Place {
            dir,
            name: name.to_vec(),
        };
        let mut made = Subvolume::new(Some(place));
        // Inherited from the subvolume's root, regardless of the directory.
        let above = self.inode(dir.subvolume.root());
        if let Some(root) = made.inodes.get_mut(&ROOT_INO) {
            above.hand_algorithm_on(root);
        }
        self.add_subvolume(made);
        Ok(Outcome::Done)
    }

    /// Adds a subvolume, and its name in the directory.
    fn add_subvolume(&mut self, subvolume: Subvolume) {
        let id = SubvolumeId(self.next_subvolume);
        self.next_subvolume += 1;
        let place = subvolume.place.clone().expect("a new subvolume has a name");
        self.subvolumes.insert_mut(id, subvolume);
        let dir = self.inode_mut(place.dir).dir_mut();
        dir.insert(&place.name, Target::Subvolume(id));
    }

    pub(super) fn snapshot(&mut self, from: &FsPath, to: &FsPath, read_only: bool) -> OpResult {
        let source = self.subvolume_at(from)?;
        let (dir, name) = self.new_name(to)?;
        let mut copy = self.subvolume(source).clone();
        // Files that only exist because they are open.
        let is_orphan = |id: &&InodeId| id.subvolume == source && self.inode(**id).nlink == 0;
        for orphan in self.open.values().filter(is_orphan) {
            copy.inodes.remove_mut(&orphan.ino);
        }
        copy.read_only = read_only;
        if !read_only {
            copy.received = Received::NOTHING;
        }
        copy.place = Some(Place {
            dir,
            name: name.to_vec(),
        });
        self.add_subvolume(copy);
        Ok(Outcome::Done)
    }

    pub(super) fn delete_subvolume(&mut self, path: &FsPath) -> OpResult {
        let id = self.subvolume_at(path)?;
        let (dir, name) = self.parent(path)?;
        self.may_delete(dir, Found::Inode(id.root()), true)?;
        self.refuse_default(id)?;
        let has_nested = self.subvolumes.values().any(|other| {
            let place = other.place.as_ref();
            place.is_some_and(|place| place.dir.subvolume == id)
        });
        if has_nested {
            return Err(OpError::NotEmpty);
        }
        self.drop_subvolume(dir, name, id)?;
        Ok(Outcome::Done)
    }

    pub(super) fn drop_subvolume(
        &mut self,
        dir: InodeId,
        name: &[u8],
        id: SubvolumeId,
    ) -> Result<(), OpError> {
        self.refuse_default(id)?;
        if self.has_open_files(id) {
            return Err(OpError::OutOfScope);
        }
        self.inode_mut(dir).dir_mut().remove(name);
        self.subvolumes.remove_mut(&id);
        Ok(())
    }

    pub(super) fn set_read_only(&mut self, path: &FsPath, read_only: bool) -> OpResult {
        let id = self.subvolume_at(path)?;
        if id == TOP || self.has_open_files(id) {
            return Err(OpError::OutOfScope);
        }
        self.subvolume_mut(id).read_only = read_only;
        Ok(Outcome::Done)
    }

    fn refuse_default(&self, id: SubvolumeId) -> Result<(), OpError> {
        if id == self.default {
            Err(OpError::NotPermitted)
        } else {
            Ok(())
        }
    }

    pub(super) fn set_default(&mut self, path: &FsPath) -> OpResult {
        self.default = self.subvolume_at(path)?;
        Ok(Outcome::Done)
    }

    pub(super) fn set_received(&mut self, path: &FsPath, number: u64) -> OpResult {
        let id = self.subvolume_at(path)?;
        let subvolume = self.subvolume_mut(id);
        if subvolume.read_only {
            return Err(OpError::ReadOnly);
        }
        subvolume.received = Received::of_number(number);
        Ok(Outcome::Done)
    }

    pub(super) fn get_received(&self, path: &FsPath) -> OpResult {
        let id = self.subvolume_at(path)?;
        Ok(Outcome::Received(self.subvolume(id).received))
    }

    /// Returns the path of the default subvolume.
    pub fn default_path(&self) -> FsPath {
        let mut names = Vec::new();
        let mut at = self.default.root();
        while at != TOP.root() {
            let (dir, name) = self.way_up(at);
            names.push(name);
            at = dir;
        }
        let names = names.iter().rev();
        names.fold(FsPath::default(), |path, name| path.join(name))
    }

    /// Returns the parent of a directory, and its name there.
    fn way_up(&self, id: InodeId) -> (InodeId, Vec<u8>) {
        let subvolume = self.subvolume(id.subvolume);
        if let (true, Some(place)) = (id.is_subvolume(), &subvolume.place) {
            return (place.dir, place.name.clone());
        }
        let found = subvolume.inodes.iter().find_map(|(ino, inode)| {
            let dir = inode.dir().ok()?;
            let mut entries = dir.entries.iter();
            let (name, _) = entries.find(|(_, entry)| entry.target == Target::Inode(id.ino))?;
            Some((InodeId { ino: *ino, ..id }, name.clone()))
        });
        found.expect("a directory has a name")
    }

    fn subvolume_at(&self, path: &FsPath) -> Result<SubvolumeId, OpError> {
        match self.find(path)? {
            Found::Inode(id) if id.is_subvolume() => Ok(id.subvolume),
            _ => Err(OpError::InvalidArgument),
        }
    }
}

//! Subvolumes and snapshots.

use super::inode::{Body, Directory, Inode, InodeId, ROOT_INO, Target};
use super::lookup::Found;
use super::{Map, ModelFs, OpResult, TOP};
use crate::script::{FsPath, OpError, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubvolumeId(pub(super) u64);

/// The one name that leads into a subvolume.
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
    /// None for the volume's own.
    pub(super) place: Option<Place>,
}

impl Subvolume {
    pub(super) fn new(place: Option<Place>) -> Subvolume {
        let root = Inode::new(0o755, Body::Dir(Directory::default()));
        Subvolume {
            inodes: Map::new_sync().insert(ROOT_INO, root),
            next_ino: ROOT_INO + 1,
            read_only: false,
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
        self.add_subvolume(Subvolume::new(Some(place)));
        Ok(Outcome::Done)
    }

    /// Names it in its place.
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
        // Files that live on only because they are open.
        let is_orphan = |id: &&InodeId| id.subvolume == source && self.inode(**id).nlink == 0;
        for orphan in self.open.values().filter(is_orphan) {
            copy.inodes.remove_mut(&orphan.ino);
        }
        copy.read_only = read_only;
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

    fn subvolume_at(&self, path: &FsPath) -> Result<SubvolumeId, OpError> {
        match self.find(path)? {
            Found::Inode(id) if id.is_subvolume() => Ok(id.subvolume),
            _ => Err(OpError::InvalidArgument),
        }
    }
}

impl SubvolumeId {
    pub(super) fn root(self) -> InodeId {
        InodeId {
            subvolume: self,
            ino: ROOT_INO,
        }
    }
}

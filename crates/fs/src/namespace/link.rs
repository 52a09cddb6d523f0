//! Adding a name to an inode, perhaps the first name of an unnamed file.

use ubtrfs_format::features::Incompat;
use ubtrfs_format::item::{FileKind, FileTime};
use ubtrfs_format::limits::MAX_LINKS;
use ubtrfs_storage::{EditEstimate, FileId};

use super::entry::{NewEntry, check_name, next_index};
use crate::error::{Error, Result};
use crate::inode::{Attr, Draft, Locked, check_mutable, inode_item_cached, kind_of, note_change};
use crate::namespace::Namespace;

impl Namespace {
    /// Creates the hard link `name` in `dir` to `file`.
    pub(crate) fn link(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        self.link_and_look(file, dir, name).map(drop)
    }

    /// Creates a hard link like `link`, and returns the attributes of the file.
    pub(crate) fn link_and_look(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let reservation = self
            .inodes
            .reserve_metadata(dir.root, EditEstimate::items(6))?;
        let parent = self.inodes.inode_in_use(dir)?;
        let inode = self.inodes.inode_in_use(file)?;
        let mut locked = Locked::all([&parent, &inode])?;
        let mut draft = Draft::new(&parent.tree);
        draft.may_add_to(dir, name)?;
        let mut item = inode_item_cached(&inode.tree, file)?;
        check_mutable(file, &item)?;
        let kind = kind_of(file, &item)?;
        if kind == FileKind::Directory {
            return Err(Error::NotPermitted(file));
        }
        let links = item.nlink.get();
        if links == 0 && !locked.state(file).linkable {
            return Err(Error::NotFound);
        }
        if file.root != dir.root {
            return Err(Error::CrossSubvolume);
        }
        match links {
            0 => draft.delete_orphan(file.ino),
            MAX_LINKS.. => return Err(Error::TooManyLinks),
            _ => {}
        }
        let index = next_index(&parent, locked.state(dir))?;
        let entry = NewEntry {
            name,
            index,
            location: file.location(),
            kind,
        };
        let now = FileTime::now();
        draft.add_to_dir(dir, entry, now)?;
        draft.add_ref(file.ino, dir.ino, index, name, self.has_extrefs())?;
        item.nlink = (links + 1).into();
        note_change(&mut item, now);
        draft.put_inode(file.ino, &item);
        let attr = self
            .inodes
            .with_delalloc(&inode, locked.state(file), Attr::of(file, &item)?)?;
        let txn = self.inodes.join_to_change(reservation, &parent.tree)?;
        draft.enter(&txn);
        locked.state(dir).next_index = Some(index + 1);
        let state = locked.state(file);
        (state.unlinked, state.linkable) = (false, false);
        Ok(attr)
    }

    /// Returns whether an inode may have more names in one directory than fit in an INODE_REF.
    pub(super) fn has_extrefs(&self) -> bool {
        self.roots
            .superblock()
            .incompat()
            .contains(Incompat::EXTENDED_IREF)
    }
}

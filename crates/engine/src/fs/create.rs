//! Making a file, directory, link, device, fifo or socket under a name.

use super::draft::Draft;
use super::entry::{NewEntry, check_name, next_index};
use super::inherit::inherited;
use super::new_inode::{NewInode, Parent};
use super::{FileId, FileTime};
use crate::error::Result;
use crate::lock;
use crate::txn::Cost;
use crate::volume::Volume;

impl Volume {
    /// Makes an inode of the kind that `new.mode` names, as `name` in `dir`.
    ///
    /// It takes over what the kernel's would: a setgid directory's group, its default ACL, compression and
    /// copy-on-write flags.
    ///
    /// Errors: the name exists, is too long or none; `dir` is no directory, is gone, or is immutable; a link's
    /// target is too long for a leaf.
    pub fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        check_name(name)?;
        new.check(self.node_store().nodesize())?;
        let kind = new.kind()?;
        let permit = self.admit(Cost::items(5).bytes(new.bytes()))?;
        let parent = self.inode_in_use(dir)?;
        let mut state = lock::write(&parent.lock)?;
        let mut draft = Draft::new(&parent.tree);
        let index = next_index(&parent, &state)?;
        let inherited = inherited(&parent.tree, dir, &mut state)?;
        let id = FileId::new(dir.root, self.new_ino(&parent.tree)?);
        let entry = NewEntry {
            name,
            index,
            location: id.location(),
            kind,
        };
        let now = FileTime::now();
        let dir_item = draft.add_to_dir(dir, entry, now)?;
        draft.insert_ref(id.ino, dir.ino, index, name);
        let from = Parent {
            item: &dir_item,
            inherited: &inherited,
        };
        draft.insert_new(id.ino, new, 1, &from, now)?;
        let txn = self.enter_tree(permit, &parent.tree)?;
        draft.enter(&txn);
        state.next_index = Some(index + 1);
        Ok(id)
    }
}

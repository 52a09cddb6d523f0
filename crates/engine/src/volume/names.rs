//! Names: looking up, listing, making, moving and removing.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{OpenFile, Volume};
use crate::error::Result;
use crate::file_id::FileId;
use crate::inode::Attr;
use crate::namespace::{DirEntry, NewInode, PathEnd, RenameMode};

impl Volume {
    /// Makes an inode of the kind that `new.mode` names, as `name` in `dir`.
    ///
    /// It takes over what the kernel's would: a setgid directory's group, its default ACL, compression and
    /// copy-on-write flags.
    ///
    /// Errors: the name exists, is too long or none; `dir` is no directory, is gone, or is immutable; a link's
    /// target is too long for a leaf.
    pub fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        self.namespace.create(dir, name, new)
    }

    /// The same, and what `attr` says of it.
    pub fn create_and_look(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(FileId, Attr)> {
        self.namespace.create_and_look(dir, name, new)
    }

    /// What `name` is in `dir`, or None. Subvolumes are entered: their root directory is returned.
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        self.namespace.lookup(dir, name)
    }

    /// Calls `each` with the entries whose index is at least `from`, in index order, until it breaks.
    pub fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        self.namespace.readdir(dir, from, each)
    }

    /// The index that the next entry of a directory gets at least. Who lists a directory up to there comes to an
    /// end, whatever is made or renamed in it meanwhile.
    pub fn dir_end(&self, dir: FileId) -> Result<u64> {
        self.namespace.dir_end(dir)
    }

    /// The directory that holds `dir`; the top level's root directory holds itself.
    pub fn parent(&self, dir: FileId) -> Result<FileId> {
        self.namespace.parent(dir)
    }

    /// The directory that holds `dir`, and the index of `dir`'s entry in it; 0 for what has no entry of its own,
    /// the top level's root directory and stubs.
    pub fn parent_entry(&self, dir: FileId) -> Result<(FileId, u64)> {
        self.namespace.parent_entry(dir)
    }

    /// Makes `name` in `dir` another name of `file`.
    ///
    /// Errors: the name exists; `file` is a directory, in another subvolume, immutable or append-only, has lost
    /// its last name, or has too many names.
    pub fn link(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.link(file, dir, name)
    }

    /// The same, and what `attr` says of the file then.
    pub fn link_and_look(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<Attr> {
        self.namespace.link_and_look(file, dir, name)
    }

    /// Resolves `path` from `base`. Links in the middle are followed, one at the end is not. A
    /// path or link that begins with '/' starts at `base`'s subvolume root.
    pub fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve(base, path)
    }

    /// Resolves `path` from `base` with a link at the end followed as well.
    pub fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve_following(base, path)
    }

    /// Resolves all of `path` but its last name, which need not exist. With `follow_last`, links at the end are followed to
    /// the name that the last of them leads to, as open(2) does to create a file; not if the path ends with a slash.
    pub fn resolve_end(&self, base: FileId, path: &[u8], follow_last: bool) -> Result<PathEnd> {
        self.namespace.resolve_end(base, path, follow_last)
    }

    /// As on a mount by the kernel, the target ends before its first NUL.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        self.namespace.readlink(id)
    }

    /// Takes the name of a file that is no directory away.
    pub fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.unlink(dir, name)
    }

    /// Moves `name` of `dir` to `to`, a directory and a name.
    ///
    /// Errors: as for `unlink` and `create`; besides, `dir` and the new directory are in different subvolumes
    /// and what moves is no subvolume; a directory would move into itself; the new name is a directory that is
    /// not empty, or a subvolume, or of another kind than the old one.
    pub fn rename(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.namespace.rename(dir, name, to, mode)
    }

    /// The same, and leaves an inode made of `whiteout` as the old name: overlay file systems hide names of lower
    /// layers by a character device 0:0.
    pub fn rename_leaving(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode<'_>,
    ) -> Result<()> {
        self.namespace.rename_leaving(dir, name, to, mode, whiteout)
    }

    /// Makes an inode, and opens it before its name can be taken away. Returns what `attr` says of it, too.
    ///
    /// Errors: as [`Volume::create`].
    pub fn create_and_hold(
        self: &Arc<Self>,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(OpenFile, Attr)> {
        let (hold, attr) = self.namespace.create_and_hold(dir, name, new)?;
        Ok((OpenFile::new(hold, self), attr))
    }

    /// Makes a regular file without a name that takes over from `dir` what one made in it would. It goes with
    /// the handle, unless `link` gives it a name before; `linkable` says whether it may.
    pub fn tmpfile(
        self: &Arc<Self>,
        dir: FileId,
        new: &NewInode<'_>,
        linkable: bool,
    ) -> Result<OpenFile> {
        let hold = self.namespace.tmpfile(dir, new, linkable)?;
        Ok(OpenFile::new(hold, self))
    }
}

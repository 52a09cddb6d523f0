//! Names: looking up, listing, making, moving and removing.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_transaction::FileId;

use super::{OpenFile, Volume};
use crate::error::{Error, Result};
use crate::inode::Attr;
use crate::namespace::{DirEntry, NewContents, NewInode, PathEnd, RenameMode};

impl Volume {
    /// Makes an inode of the kind that `new.mode` names, as `name` in `dir`.
    ///
    /// It takes over what the kernel's would: a setgid directory's group, its default ACL, compression and
    /// copy-on-write flags.
    ///
    /// Errors:
    /// - the name exists, is too long or none;
    /// - `dir` is no directory, is gone, or is immutable;
    /// - a link's target is too long for a leaf.
    pub fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        self.namespace.create(dir, name, new)
    }

    /// Makes an inode as [`Volume::create`] does, and returns its attributes, too.
    ///
    /// Errors: as [`Volume::create`].
    pub fn create_and_look(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(FileId, Attr)> {
        self.namespace.create_and_look(dir, name, new)
    }

    /// Makes a regular file together with its contents, by one change.
    ///
    /// None, with nothing changed, unless all of its data goes into its item as it is: it is then to be made and
    /// written.
    ///
    /// Errors: as [`Volume::create`].
    pub fn create_filled(
        &self,
        dir: FileId,
        name: &[u8],
        new: &NewInode<'_>,
        contents: &NewContents<'_>,
    ) -> Result<Option<FileId>> {
        self.namespace.create_filled(dir, name, new, contents)
    }

    /// Looks up the inode that `name` leads to in `dir`. For a subvolume, that is its root directory. Returns None if
    /// there is no such entry.
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

    /// Returns the least index that the next entry of a directory can get.
    ///
    /// A listing that stops at this index terminates, even if entries are added or renamed during the listing.
    pub fn dir_end(&self, dir: FileId) -> Result<u64> {
        self.namespace.dir_end(dir)
    }

    /// Returns the directory that holds `dir`. The top level's root directory holds itself.
    pub fn parent(&self, dir: FileId) -> Result<FileId> {
        self.namespace.parent(dir)
    }

    /// Returns the directory that holds `dir`, and the index of `dir`'s entry in it.
    ///
    /// The index is 0 for directories without an entry of their own: the top level's root directory and empty subvolume
    /// directories.
    pub fn parent_entry(&self, dir: FileId) -> Result<(FileId, u64)> {
        self.namespace.parent_entry(dir)
    }

    /// Makes `name` in `dir` another name of `file`.
    ///
    /// Errors: the name exists; `file` is a directory, in another subvolume, immutable or append-only, has lost its
    /// last name, or has too many names.
    pub fn link(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.link(file, dir, name)
    }

    /// Makes another name as [`Volume::link`] does, and returns the attributes of the file.
    ///
    /// Errors: as [`Volume::link`].
    pub fn link_and_look(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<Attr> {
        self.namespace.link_and_look(file, dir, name)
    }

    /// Resolves `path` from `base`. Links in the middle are followed, one at the end is not.
    ///
    /// A path or link that begins with '/' starts at the root of `base`'s subvolume.
    pub fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve(base, path)
    }

    /// Resolves `path` from `base` with a link at the end followed as well.
    pub fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve_following(base, path)
    }

    /// Resolves `path` as [`Volume::resolve_following`], if `check` lets the walk go on from each directory that it comes to.
    pub fn resolve_following_if<E: From<Error>>(
        &self,
        base: FileId,
        path: &[u8],
        check: impl FnMut(FileId) -> std::result::Result<(), E>,
    ) -> std::result::Result<FileId, E> {
        self.namespace.resolve_following_if(base, path, check)
    }

    /// Resolves all of `path` but its last name, which need not exist.
    ///
    /// With `follow_last`, links at the end are followed to the name that the last of them leads to, as open(2) does to
    /// create a file. A path that ends with a slash is not followed so.
    pub fn resolve_end(&self, base: FileId, path: &[u8], follow_last: bool) -> Result<PathEnd> {
        self.namespace.resolve_end(base, path, follow_last)
    }

    /// Returns the target of a symbolic link. As on a mount by the kernel, it ends before its first NUL.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        self.namespace.readlink(id)
    }

    /// Removes the name of a file that is no directory.
    ///
    /// Errors: the name does not exist or is a directory; `dir` or the file is immutable or append-only.
    pub fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.unlink(dir, name)
    }

    /// Moves `name` of `dir` to `to`, a directory and a name.
    ///
    /// Errors:
    /// - those of [`Volume::unlink`] and [`Volume::create`];
    /// - the directories are in different subvolumes and no subvolume moves;
    /// - a directory would move into itself;
    /// - the new name is a directory that is not empty, or a subvolume, or of another kind than the old one.
    pub fn rename(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.namespace.rename(dir, name, to, mode)
    }

    /// Moves a name as [`Volume::rename`] does, and leaves an inode made of `whiteout` as the old name.
    ///
    /// Overlay file systems hide names of lower layers by a character device 0:0.
    ///
    /// Errors: as [`Volume::rename`].
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

    /// Makes a regular file without a name, which takes over from `dir` what one made in it would.
    ///
    /// It goes with the handle, unless `link` gives it a name before. `linkable` says whether that is allowed.
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

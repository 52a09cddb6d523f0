//! Names: looking up, listing, creating, moving and removing.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_storage::FileId;

use super::{OpenFile, Volume};
use crate::error::{Error, Result};
use crate::inode::Attr;
use crate::namespace::{DirEntry, NewContents, NewInode, PathEnd, RenameMode};

impl Volume {
    /// Creates `name` in `dir`. `new.mode` has the file type.
    ///
    /// As in the kernel, it inherits a setgid directory's group, the default ACL, compression and
    /// copy-on-write flags.
    ///
    /// Errors:
    /// - the name exists, is too long or invalid;
    /// - `dir` is not a directory, is deleted, or is immutable;
    /// - a link's target is too long for a leaf.
    pub fn create(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId> {
        self.namespace.create(dir, name, new)
    }

    /// Creates an inode like [`Volume::create`], and also returns its attributes.
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

    /// Creates a regular file together with its contents, in one change.
    ///
    /// Returns None, with nothing changed, unless all data fits inline without encoding. The caller must then
    /// create and write the file.
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

    /// Looks up `name` in `dir`. A subvolume's entry leads to its root directory. Returns None if there is no
    /// such entry.
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        self.namespace.lookup(dir, name)
    }

    /// Calls `each` with the entries from index `from` on, in index order, until it breaks.
    pub fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        self.namespace.readdir(dir, from, each)
    }

    /// Returns a lower bound of the next entry's index.
    ///
    /// A listing that stops there terminates even if entries are added or renamed at the same time.
    pub fn dir_end(&self, dir: FileId) -> Result<u64> {
        self.namespace.dir_end(dir)
    }

    /// Returns the parent of `dir`. The root directory of the top level is its own parent.
    pub fn parent(&self, dir: FileId) -> Result<FileId> {
        self.namespace.parent(dir)
    }

    /// Returns the parent of `dir`, and the index of its entry there.
    ///
    /// The index is 0 for directories without an entry: the root directory of the top level, and empty
    /// subvolume directories.
    pub fn parent_entry(&self, dir: FileId) -> Result<(FileId, u64)> {
        self.namespace.parent_entry(dir)
    }

    /// Creates the hard link `name` in `dir` to `file`.
    ///
    /// Errors: the name exists; `file` is a directory, in another subvolume, immutable or append-only, has
    /// lost its last name, or has too many names.
    pub fn link(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.link(file, dir, name)
    }

    /// Creates a hard link like [`Volume::link`], and returns the attributes of the file.
    ///
    /// Errors: as [`Volume::link`].
    pub fn link_and_look(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<Attr> {
        self.namespace.link_and_look(file, dir, name)
    }

    /// Resolves `path` from `base`. A link at the end is not followed.
    ///
    /// An absolute path or link starts at the root of `base`'s subvolume.
    pub fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve(base, path)
    }

    /// Resolves `path` from `base`, and also follows a link at the end.
    pub fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.namespace.resolve_following(base, path)
    }

    /// Resolves `path` like [`Volume::resolve_following`], but calls `check` before it enters each directory.
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
    /// With `follow_last`, links at the end are followed to the last target's name, as in open(2) with
    /// O_CREAT. A path that ends with a slash is an exception: its links are not followed.
    pub fn resolve_end(&self, base: FileId, path: &[u8], follow_last: bool) -> Result<PathEnd> {
        self.namespace.resolve_end(base, path, follow_last)
    }

    /// Returns the target of a symbolic link. As in the kernel, it ends before its first NUL.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        self.namespace.readlink(id)
    }

    /// Removes the name of a file that is not a directory.
    ///
    /// Errors: the name does not exist or is a directory; `dir` or the file is immutable or append-only.
    pub fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.namespace.unlink(dir, name)
    }

    /// Renames `name` of `dir` to `to`, a directory and a name.
    ///
    /// Errors:
    /// - the errors of [`Volume::unlink`] and [`Volume::create`];
    /// - the directories are in different subvolumes, and the name is not a subvolume;
    /// - a directory would move into itself;
    /// - the new name is a directory that is not empty, a subvolume, or of another type than the old one.
    pub fn rename(
        &self,
        dir: FileId,
        name: &[u8],
        to: (FileId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.namespace.rename(dir, name, to, mode)
    }

    /// Renames like [`Volume::rename`], and creates an inode from `whiteout` under the old name.
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

    /// Creates an inode, and opens it before any thread can unlink it. Also returns its attributes.
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

    /// Creates a regular file without a name, with the same inheritance as a file created in `dir`.
    ///
    /// It is deleted with the handle, unless `link` names it first. `linkable` is whether that is allowed.
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

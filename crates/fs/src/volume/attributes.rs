//! Attributes of inodes: `stat`, times, flags, extended attributes.

use std::sync::Arc;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_storage::FileId;

use crate::error::Result;
use crate::inode::{AtimePolicy, Attr, LookupRefs, SetAttr, XattrMode};

use super::Volume;

impl Volume {
    /// Updates the access time after a read. Without space, or on a read-only subvolume, it does nothing and
    /// returns no error.
    pub fn touch_atime(&self, id: FileId, policy: AtimePolicy) -> Result<()> {
        self.inodes.touch_atime(id, policy)
    }

    /// Returns the attributes for `stat`. The size and the used bytes include buffered data.
    ///
    /// Locks: the inode's, for a short time.
    pub fn attr(&self, id: FileId) -> Result<Attr> {
        self.inodes.attr(id)
    }

    /// Returns the attributes of the inode item. They exclude buffered data, which takes long to count.
    pub fn stored_attr(&self, id: FileId) -> Result<Attr> {
        self.inodes.stored_attr(id)
    }

    /// Replaces the user-settable flags of an inode. `attr` returns them.
    ///
    /// As in the kernel, NODATACOW of a regular file with contents does not change, and NODATASUM follows it.
    /// COMPRESS sets the property `btrfs.compression` to the algorithm of the volume's options. Flags without
    /// COMPRESS remove the property.
    ///
    /// Errors: COMPRESS with NOCOMPRESS or NODATACOW; a compression flag on an inode that has NODATACOW, or
    /// the reverse; a flag that users cannot set.
    pub fn set_inode_flags(&self, id: FileId, flags: InodeFlags) -> Result<()> {
        self.inodes.set_inode_flags(id, flags)
    }

    /// Sets the source of references outside the engine.
    pub fn set_lookup_refs(&self, lookup_refs: Option<Arc<dyn LookupRefs>>) {
        self.inodes.set_lookup_refs(lookup_refs)
    }

    /// Changes attributes. A new mode is also stored in the access ACL, if ACLs are enabled.
    ///
    /// Errors: an immutable file; an append-only file, except for setting times to now.
    pub fn set_attr(&self, id: FileId, set: &SetAttr) -> Result<()> {
        self.inodes.set_attr(id, set)
    }

    /// Changes attributes, and returns all attributes afterwards.
    ///
    /// Errors: as [`Volume::set_attr`].
    pub fn set_attr_and_look(&self, id: FileId, set: &SetAttr) -> Result<Attr> {
        self.inodes.set_attr_and_look(id, set)
    }

    /// Turns lazy times on, or turns them off and writes the pending ones.
    ///
    /// Errors: as `sync`.
    pub fn set_lazy_times(&self, are_lazy: bool) -> Result<()> {
        self.inodes.set_lazy_times(are_lazy)
    }

    /// Returns the value of the attribute `name`, or None.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inodes.xattr(id, name)
    }

    /// Returns all attributes as (name, value), in the order of their items.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inodes.xattrs(id)
    }

    /// Sets an attribute.
    ///
    /// An access ACL also changes the mode, and is not stored if the mode expresses it completely. An ACL
    /// without entries is removed. `btrfs.compression` also changes flags.
    ///
    /// Errors:
    /// - the name exists or does not exist, against `mode`;
    /// - no room in the leaf;
    /// - a namespace that the kernel does not support;
    /// - an invalid ACL or property;
    /// - an immutable or append-only file.
    pub fn set_xattr(&self, id: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.inodes.set_xattr(id, name, value, mode)
    }

    /// Sets the access ACL for a user.
    ///
    /// `clears_setgid`: the user is neither in the file's group nor privileged, so the file loses its setgid
    /// bit. Removing the ACL does not change that bit.
    ///
    /// Errors: as [`Volume::set_xattr`].
    pub fn set_access_acl(&self, id: FileId, value: &[u8], clears_setgid: bool) -> Result<()> {
        self.inodes.set_access_acl(id, value, clears_setgid)
    }

    /// Removes an attribute.
    ///
    /// Errors: the attribute does not exist (not an error for ACLs, nor for properties without an effect on
    /// the file); an immutable or append-only file.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        self.inodes.remove_xattr(id, name)
    }

    /// Drops the reference that [`LookupRefs::pin`] took.
    pub fn unpin(&self, id: FileId) {
        self.inodes.unpin(id);
    }
}

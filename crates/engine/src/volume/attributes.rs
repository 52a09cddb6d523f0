//! Attributes of inodes: `stat`, times, flags, extended attributes.

use std::sync::Arc;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_transaction::FileId;

use crate::error::Result;
use crate::inode::{AtimePolicy, Attr, LookupRefs, SetAttr, XattrMode};

use super::Volume;

impl Volume {
    /// Notes that a file was read. A file that cannot be changed is left as it is, without an error.
    pub fn touch_atime(&self, id: FileId, policy: AtimePolicy) -> Result<()> {
        self.inodes.touch_atime(id, policy)
    }

    /// Returns the attributes that `stat` shows of an inode. Size and bytes in use include buffered data.
    ///
    /// Locks: the inode's, for a moment.
    pub fn attr(&self, id: FileId) -> Result<Attr> {
        self.inodes.attr(id)
    }

    /// Returns the attributes in the inode's item: without the size and the bytes of buffered data, which take long to
    /// count.
    pub fn stored_attr(&self, id: FileId) -> Result<Attr> {
        self.inodes.stored_attr(id)
    }

    /// Sets the flags that users set to exactly these. `attr` shows them.
    ///
    /// As in the kernel, NODATACOW of a regular file with contents stays as it is, and NODATASUM goes with it. COMPRESS
    /// sets the property `btrfs.compression` to the algorithm of the volume's options; any other set of flags removes
    /// it.
    ///
    /// Errors: COMPRESS with NOCOMPRESS or NODATACOW, or one of them after the other; a flag that is not the user's.
    pub fn set_inode_flags(&self, id: FileId, flags: InodeFlags) -> Result<()> {
        self.inodes.set_inode_flags(id, flags)
    }

    /// Has references outside the engine asked for from now on.
    pub fn set_lookup_refs(&self, lookup_refs: Option<Arc<dyn LookupRefs>>) {
        self.inodes.set_lookup_refs(lookup_refs)
    }

    /// Changes attributes. A new mode goes into the access ACL, too, where ACLs count.
    ///
    /// Errors: an immutable file; an append-only one, but for setting times to now.
    pub fn set_attr(&self, id: FileId, set: &SetAttr) -> Result<()> {
        self.inodes.set_attr(id, set)
    }

    /// Changes attributes, and returns all of them as they are then.
    ///
    /// Errors: as [`Volume::set_attr`].
    pub fn set_attr_and_look(&self, id: FileId, set: &SetAttr) -> Result<Attr> {
        self.inodes.set_attr_and_look(id, set)
    }

    /// Has changes of times alone stay in memory from now on, or writes those that did.
    ///
    /// Errors: as `sync`.
    pub fn set_lazy_times(&self, are_lazy: bool) -> Result<()> {
        self.inodes.set_lazy_times(are_lazy)
    }

    /// Returns the value of the attribute of exactly this name, or None.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inodes.xattr(id, name)
    }

    /// Returns all attributes as (name, value), in the order of their items.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inodes.xattrs(id)
    }

    /// Sets an attribute.
    ///
    /// An access ACL changes the mode with it, and is not kept if the mode says it all. An ACL without entries is
    /// removed. `btrfs.compression` changes flags with it.
    ///
    /// Errors:
    /// - the name exists or does not, against `mode`;
    /// - no room in the leaf;
    /// - a namespace that the kernel lacks;
    /// - an ACL or property that is not sound;
    /// - an immutable or append-only file.
    pub fn set_xattr(&self, id: FileId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.inodes.set_xattr(id, name, value, mode)
    }

    /// Sets the access ACL on behalf of a user.
    ///
    /// `clears_setgid`: the user is neither in the file's group nor privileged, so that the file loses its setgid bit.
    /// An ACL that is removed leaves that bit as it is.
    ///
    /// Errors: as [`Volume::set_xattr`].
    pub fn set_access_acl(&self, id: FileId, value: &[u8], clears_setgid: bool) -> Result<()> {
        self.inodes.set_access_acl(id, value, clears_setgid)
    }

    /// Removes an attribute.
    ///
    /// Errors: the attribute does not exist (no error for ACLs, nor for properties that the file has no use for); an
    /// immutable or append-only file.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        self.inodes.remove_xattr(id, name)
    }

    /// Drops the reference that [`LookupRefs::pin`] took.
    pub fn unpin(&self, id: FileId) {
        self.inodes.unpin(id);
    }
}

//! The inode flags that `chattr` sets.

use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{FileKind, FileTime, InodeFlags};
use ubtrfs_storage::{EditEstimate, FileId, lock};

use super::draft::Draft;
use super::inode_item::{kind_of, note_change};
use super::xattr::XattrMode;
use super::{Inodes, property};
use crate::error::{Error, Result};

/// The flags that users may set.
const SETTABLE: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::NODATACOW)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::NOCOMPRESS);
/// The algorithm that the kernel uses if neither a property nor a mount option names one.
const USUAL_ALGORITHM: Compression = Compression::Zlib;

impl Inodes {
    /// Replaces the user-settable flags of an inode. `attr` returns them.
    pub(crate) fn set_inode_flags(&self, id: FileId, flags: InodeFlags) -> Result<()> {
        if !SETTABLE.contains(flags) {
            return Err(Error::Invalid("inode flag"));
        }
        let reservation = self.reserve_metadata(id.root, EditEstimate::items(3))?;
        let inode = self.inode_in_use(id)?;
        let mut state = lock::write(&inode.lock)?;
        let mut draft = Draft::new(&inode.tree);
        let mut item = draft.inode(id)?;
        inode.tree.check_writable()?;
        let old = item.flags();
        check_compatible(old, flags)?;
        let kind = kind_of(id, &item)?;
        let size = state.buffer.size_over(item.size.get());
        let mut new = (old - SETTABLE) | flags;
        if kind == FileKind::Regular && size > 0 {
            new.set(InodeFlags::NODATACOW, old.contains(InodeFlags::NODATACOW));
        } else if kind == FileKind::Regular {
            new.set(InodeFlags::NODATASUM, flags.contains(InodeFlags::NODATACOW));
        }
        if flags.contains(InodeFlags::COMPRESS) {
            if !property::can_compress(new) {
                return Err(Error::Invalid(
                    "compression of a file that is not copied on write",
                ));
            }
            let algorithm = match self.settings.compress().algorithm {
                Compression::None => USUAL_ALGORITHM,
                algorithm => algorithm,
            };
            let name = algorithm.name().as_bytes();
            draft.set_xattr(id.ino, property::COMPRESSION, name, XattrMode::Any)?;
        } else {
            draft.remove_xattr(id.ino, property::COMPRESSION)?;
        }
        state.inherited = None;
        item.flags = new.bits().into();
        note_change(&mut item, FileTime::now());
        draft.put_inode(id.ino, &item);
        let txn = self.join_to_change(reservation, &inode.tree)?;
        draft.enter(&txn);
        Ok(())
    }
}

fn check_compatible(old: InodeFlags, new: InodeFlags) -> Result<()> {
    let compression = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
    let nocow = InodeFlags::NODATACOW;
    if new.contains(compression)
        || new.contains(nocow | InodeFlags::COMPRESS)
        || new.contains(nocow) && old.intersects(compression)
        || old.contains(nocow) && new.intersects(compression)
    {
        return Err(Error::Invalid(
            "compression and no copy on write exclude each other",
        ));
    }
    Ok(())
}

//! INODE_ITEM.

use super::{Slot, objectid};
use crate::check::{BlockContext, CorruptItem};
use crate::ids::{InodeNr, RootId};
use crate::item::{FileKind, InodeFlags, InodeItem};
use crate::key::Key;
use crate::maker::inode_flags;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptInode {
    #[error("no inode may have the number {0}")]
    Number(u64),
    #[error("key offset is not 0")]
    KeyOffset,
    #[error("generation {found} is above the volume's {limit}")]
    Generation { found: u64, limit: u64 },
    #[error("transid {found} is above the volume's {limit}")]
    Transid { found: u64, limit: u64 },
    #[error("mode {0:#o} has unknown bits")]
    ModeBits(u32),
    #[error("mode {0:#o} names no kind of file")]
    ModeKind(u32),
    /// Directories have no hard links.
    #[error("directory with nlink {0}")]
    DirectoryLinks(u32),
    /// Unknown bits in the upper half of the flags are ignored, in the lower half they are not.
    #[error("unknown flags {0:#x}")]
    Flags(u64),
}

const MODE_BITS: u32 = 0o177_777;

const KNOWN_FLAGS: InodeFlags = InodeFlags::NODATASUM
    .union(InodeFlags::NODATACOW)
    .union(InodeFlags::READONLY)
    .union(InodeFlags::NOCOMPRESS)
    .union(InodeFlags::PREALLOC)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::ROOT_ITEM_INIT)
    .union(InodeFlags::from_bits_retain(inode_flags()));

/// Returns whether this may be an inode number. Allowed are normal inode numbers, the root tree's directory, and the
/// inode cache of old kernels.
pub(super) fn is_inode_number(number: u64) -> bool {
    (InodeNr::FIRST_FREE.0..=RootId::LAST_FREE).contains(&number)
        || number == objectid::ROOT_TREE_DIR
        || number == objectid::FREE_INO
}

pub(super) fn check_key(key: Key) -> Result<(), CorruptInode> {
    if !is_inode_number(key.objectid) {
        return Err(CorruptInode::Number(key.objectid));
    }
    if key.offset != 0 {
        return Err(CorruptInode::KeyOffset);
    }
    Ok(())
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    check_key(slot.key)?;
    let inode = slot.view::<InodeItem>()?;
    check_fields(inode, context)?;
    Ok(())
}

/// Checks the fields of an inode. Does not check size and nbytes, which the kernel does not keep correct for
/// directories.
fn check_fields(inode: &InodeItem, context: &BlockContext<'_>) -> Result<(), CorruptInode> {
    let limit = context.max_generation();
    let generation = inode.generation.get();
    if generation > limit {
        return Err(CorruptInode::Generation {
            found: generation,
            limit,
        });
    }
    let transid = inode.transid.get();
    if transid > limit {
        return Err(CorruptInode::Transid {
            found: transid,
            limit,
        });
    }
    let mode = inode.mode.get();
    if mode & !MODE_BITS != 0 {
        return Err(CorruptInode::ModeBits(mode));
    }
    let kind = FileKind::from_mode(mode).ok_or(CorruptInode::ModeKind(mode))?;
    let nlink = inode.nlink.get();
    if kind == FileKind::Directory && nlink > 1 {
        return Err(CorruptInode::DirectoryLinks(nlink));
    }
    let unknown = inode.flags().bits() & 0xffff_ffff & !KNOWN_FLAGS.bits();
    if unknown != 0 && !context.ignore_flags {
        return Err(CorruptInode::Flags(unknown));
    }
    Ok(())
}

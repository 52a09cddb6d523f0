//! Back references with names: INODE_REF, INODE_EXTREF, ROOT_REF and ROOT_BACKREF.

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::item::{InodeExtrefs, InodeRefs, RootRef, RootRefHead};
use crate::limits::MAX_NAME_BYTES;
use crate::name_hash::extref_hash;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptName {
    #[error("no name")]
    Empty,
    #[error("{rest} bytes at the end hold no whole entry")]
    CrossesEnd { rest: u32 },
    #[error("name of {len} bytes, at most {max}")]
    TooLong { len: u32, max: u32 },
    /// The key's offset must be the hash of the parent and the name.
    #[error("name hashes to {found:#x}, key has {wanted:#x}")]
    Hash { wanted: u64, found: u64 },
}

fn check_name(name: &[u8]) -> Result<(), CorruptName> {
    if name.is_empty() {
        return Err(CorruptName::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(CorruptName::TooLong {
            len: name.len() as u32,
            max: MAX_NAME_BYTES as u32,
        });
    }
    Ok(())
}

fn check_end(bytes: &[u8], rest: &[u8]) -> Result<(), CorruptName> {
    if bytes.is_empty() {
        return Err(CorruptName::Empty);
    }
    if !rest.is_empty() {
        return Err(CorruptName::CrossesEnd {
            rest: rest.len() as u32,
        });
    }
    Ok(())
}

pub(super) fn check_inode_ref(slot: &Slot<'_>) -> Result<(), CorruptItem> {
    let mut entries = InodeRefs::new(slot.bytes);
    for entry in entries.by_ref() {
        check_name(entry.name)?;
    }
    check_end(slot.bytes, entries.rest())?;
    Ok(())
}

pub(super) fn check_inode_extref(
    slot: &Slot<'_>,
    context: &BlockContext<'_>,
) -> Result<(), CorruptItem> {
    let mut entries = InodeExtrefs::new(slot.bytes);
    for entry in entries.by_ref() {
        check_name(entry.name)?;
        let found = extref_hash(entry.parent, entry.name);
        if found != slot.key.offset && !context.scrambled_names {
            let wanted = slot.key.offset;
            return Err(CorruptName::Hash { wanted, found }.into());
        }
    }
    check_end(slot.bytes, entries.rest())?;
    Ok(())
}

pub(super) fn check_root_ref(slot: &Slot<'_>) -> Result<(), CorruptItem> {
    slot.view_prefix::<RootRefHead>()?;
    let Some(root_ref) = RootRef::decode(slot.bytes) else {
        let rest = (slot.bytes.len() - size_of::<RootRefHead>()) as u32;
        return Err(CorruptName::CrossesEnd { rest }.into());
    };
    check_name(root_ref.name)?;
    Ok(())
}

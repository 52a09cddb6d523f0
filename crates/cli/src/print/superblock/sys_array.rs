//! The system chunk array: keys and chunks, which alternate.

use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::superblock::{SYS_CHUNK_ARRAY_SIZE, Superblock};
use zerocopy::FromBytes;

/// A fault in the system chunk array. The rest of the superblock is still printed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SysArrayError {
    #[error("sys_array_size {0} shouldn't exceed {SYS_CHUNK_ARRAY_SIZE} bytes")]
    TooLarge(u32),
    #[error("sys_array too short to read {len} bytes at offset {offset}")]
    TooShort { len: usize, offset: usize },
    #[error("unexpected item type {item_type} in sys_array at offset {offset}")]
    ItemType { item_type: u8, offset: usize },
    #[error("invalid number of stripes 0 in sys_array at offset {0}")]
    NoStripes(usize),
}

#[derive(Debug)]
pub(super) struct SysEntry<'a> {
    pub(super) key: Key,
    /// The chunk with its stripes, or None if it is faulty.
    pub(super) chunk: Option<(&'a Chunk, &'a [Stripe])>,
}

/// Returns the entries up to the first fault, and the fault.
pub(super) fn sys_entries(sb: &Superblock) -> (Vec<SysEntry<'_>>, Result<(), SysArrayError>) {
    let mut entries = Vec::new();
    let end = read_entries(sb, &mut entries);
    (entries, end)
}

fn read_entries<'a>(
    sb: &'a Superblock,
    entries: &mut Vec<SysEntry<'a>>,
) -> Result<(), SysArrayError> {
    let size = sb.sys_chunk_array_size.get();
    let array = sb.sys_chunk_array.get(..size as usize);
    let array = array.ok_or(SysArrayError::TooLarge(size))?;
    let mut at = 0;
    while at < array.len() {
        let Ok((key, _)) = DiskKey::ref_from_prefix(&array[at..]) else {
            let len = size_of::<DiskKey>();
            return Err(SysArrayError::TooShort { len, offset: at });
        };
        let key = key.get();
        at += size_of::<DiskKey>();
        let chunk = sys_chunk(key, &array[at..], at);
        entries.push(SysEntry {
            key,
            chunk: chunk.as_ref().ok().copied(),
        });
        let (_, stripes) = chunk?;
        at += size_of::<Chunk>() + size_of_val(stripes);
    }
    Ok(())
}

fn sys_chunk(key: Key, rest: &[u8], offset: usize) -> Result<(&Chunk, &[Stripe]), SysArrayError> {
    if key.item_type != KeyType::CHUNK_ITEM {
        let item_type = key.item_type.0;
        return Err(SysArrayError::ItemType { item_type, offset });
    }
    let too_short = |stripes: usize| SysArrayError::TooShort {
        len: size_of::<Chunk>() + stripes * size_of::<Stripe>(),
        offset,
    };
    // A chunk has at least one stripe.
    if rest.len() < size_of::<Chunk>() + size_of::<Stripe>() {
        return Err(too_short(1));
    }
    let (chunk, _) = Chunk::ref_from_prefix(rest).map_err(|_| too_short(1))?;
    let count = usize::from(chunk.num_stripes.get());
    if count == 0 {
        return Err(SysArrayError::NoStripes(offset));
    }
    let (chunk, stripes, _) = Chunk::split(rest).ok_or_else(|| too_short(count))?;
    Ok((chunk, stripes))
}

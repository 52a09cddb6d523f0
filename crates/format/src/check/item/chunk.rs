//! CHUNK_ITEM.

use super::Slot;
use crate::check::{BlockContext, CorruptItem};
use crate::chunk_check::check_chunk;
use crate::ids::Logical;
use crate::item::{Chunk, Stripe};

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let (chunk, stripes) = slot.view_prefix::<Chunk>()?;
    let stripes_len = usize::from(chunk.num_stripes.get()) * size_of::<Stripe>();
    if chunk.num_stripes.get() != 0 && stripes.len() != stripes_len {
        return Err(slot.wrong_size(size_of::<Chunk>() + stripes_len));
    }
    let logical = Logical(slot.key.offset);
    check_chunk(logical, chunk, context.sectorsize, context.incompat)?;
    Ok(())
}

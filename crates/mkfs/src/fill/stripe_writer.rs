//! Writes to chunks, merged into long runs.
//!
//! Not here: the allocation of places (`data_space`, `tree_placement`).

use ubtrfs_format::ids::Logical;

use crate::chunks::{Place, VolumeChunks};
use crate::error::MkfsError;
use crate::targets::Targets;

/// A run is written when it reaches this length.
const RUN_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct StripeWriter<'d> {
    targets: &'d Targets<'d>,
    /// Contiguous bytes of one chunk.
    run: Vec<u8>,
    start: Place,
}

impl<'d> StripeWriter<'d> {
    pub(super) fn new(targets: &'d Targets<'d>) -> StripeWriter<'d> {
        StripeWriter {
            targets,
            run: Vec::new(),
            start: Place::default(),
        }
    }

    pub(super) fn targets(&self) -> &'d Targets<'d> {
        self.targets
    }

    pub(super) fn put(
        &mut self,
        layout: &VolumeChunks,
        place: Place,
        bytes: &[u8],
    ) -> Result<(), MkfsError> {
        let continues = place.chunk == self.start.chunk
            && place.offset == self.start.offset + self.run.len() as u64;
        if !continues || self.run.len() >= RUN_BYTES {
            self.flush(layout)?;
            self.start = place;
        }
        self.run.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes bytes at a logical address, like [`StripeWriter::put`].
    pub(super) fn put_at(
        &mut self,
        layout: &VolumeChunks,
        logical: Logical,
        bytes: &[u8],
    ) -> Result<(), MkfsError> {
        let chunk = layout.chunk_at(logical);
        let offset = logical.0 - layout.chunks[chunk].map.logical().0;
        self.put(layout, Place { chunk, offset }, bytes)
    }

    pub(super) fn flush(&mut self, layout: &VolumeChunks) -> Result<(), MkfsError> {
        if !self.run.is_empty() {
            let chunk = &layout.chunks[self.start.chunk].map;
            self.targets.write(chunk, self.start.offset, &self.run)?;
            self.run.clear();
        }
        Ok(())
    }

    /// Discards pending writes.
    pub(super) fn discard(&mut self) {
        self.run.clear();
    }
}

//! Writes to chunks, gathered into long runs.
//!
//! Not here: which place is whose (`data_space`, `tree_placement`).

use ubtrfs_format::ids::Logical;

use crate::chunks::{Place, VolumeChunks};
use crate::error::MkfsError;
use crate::targets::Targets;

/// A run is written when it is as long as this.
const RUN_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct StripeWriter<'d> {
    targets: &'d Targets<'d>,
    /// Bytes of one chunk that lie together.
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

    /// Puts bytes by address, like [`StripeWriter::put`].
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

    /// Drops what was not written yet.
    pub(super) fn discard(&mut self) {
        self.run.clear();
    }
}

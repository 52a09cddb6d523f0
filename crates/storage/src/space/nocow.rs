//! Writes without copy on write (nocow).
//!
//! A writer looks up its block group once and holds a [`NocowWrite`] until it is done.

use std::sync::Arc;

use super::block_group::BlockGroup;

/// A nocow write in progress. It prevents the block group from becoming read-only.
#[derive(Debug)]
pub struct NocowWrite {
    group: Arc<BlockGroup>,
}

impl NocowWrite {
    /// Begins a write in a group. Returns None if the group is read-only: the data must be written elsewhere.
    pub(crate) fn begin(group: Arc<BlockGroup>) -> Option<NocowWrite> {
        // Not `then_some`: it would create and drop a `NocowWrite` even after a refusal, and its drop calls `leave`.
        group.nocow_writers().enter().then(|| NocowWrite { group })
    }
}

impl Drop for NocowWrite {
    fn drop(&mut self) {
        self.group.nocow_writers().leave();
    }
}

//! Promises of space, so that a full volume is told to who asks and not to a commit.
//!
//! Data is promised out of the groups that there are; if they do not suffice a chunk is made at once, in
//! memory. Metadata is promised also out of what the unallocated space could give, and no data chunk is made
//! that would break such a promise (CLASS-2).

use std::sync::atomic::Ordering;

use super::class::{SpaceClass, SpaceKind, release};
use super::{Space, SpaceError};

impl Space {
    /// Promises space for data. `allocate_data` takes what it gives off the promise.
    pub(crate) fn reserve_data(&self, bytes: u64) -> Result<(), SpaceError> {
        let class = self.class(SpaceKind::Data);
        if promise_data(class, bytes) {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        while !promise_data(class, bytes) {
            self.grow(&mut chunks, SpaceKind::Data, None)
                .map_err(|error| match error {
                    SpaceError::NoSpace { kind, .. } => SpaceError::NoSpace { kind, bytes },
                    other => other,
                })?;
        }
        Ok(())
    }

    /// Takes back a promise of `reserve_data` as far as nothing was allocated of it.
    pub(crate) fn release_data(&self, bytes: u64) {
        release(&self.class(SpaceKind::Data).reserved_data, bytes);
    }

    /// Promises that commits will find so many bytes for tree blocks, all told: no chunk of data will take
    /// them. If that cannot be kept, the promise stays as it was.
    pub(crate) fn promise_metadata(&self, bytes: u64) -> bool {
        let class = self.class(SpaceKind::Metadata);
        // Several promise at once: what another asks for must not be in the way of this.
        if !class.keeps(bytes) {
            return false;
        }
        let before = class.reserved_metadata.swap(bytes, Ordering::SeqCst);
        let keeps = class.keeps(bytes);
        if !keeps {
            class.reserved_metadata.store(before, Ordering::SeqCst);
        }
        keeps
    }

    /// What commits need is so much at most from now on.
    pub(crate) fn lower_metadata_promise(&self, bytes: u64) {
        let class = self.class(SpaceKind::Metadata);
        class.reserved_metadata.fetch_min(bytes, Ordering::SeqCst);
    }
}

impl SpaceClass {
    /// Whether `metadata` can be promised beside data.
    fn keeps(&self, metadata: u64) -> bool {
        let data = self.reserved_data.load(Ordering::SeqCst);
        data.saturating_add(metadata) <= self.room().saturating_add(self.growth())
    }

    pub(super) fn keeps_promises(&self) -> bool {
        self.reserved() <= self.room().saturating_add(self.growth())
    }
}

/// Counts a promise if the groups can keep it.
fn promise_data(class: &SpaceClass, bytes: u64) -> bool {
    let promised = class
        .reserved_data
        .try_update(Ordering::SeqCst, Ordering::SeqCst, |data| {
            let metadata = class.reserved_metadata.load(Ordering::SeqCst);
            let data = data.checked_add(bytes)?;
            (data.checked_add(metadata)? <= class.room()).then_some(data)
        });
    promised.is_ok()
}

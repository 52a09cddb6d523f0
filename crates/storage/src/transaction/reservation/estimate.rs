//! The number and size of an operation's edits, and their worst case.

/// The number of items that the global reserve covers for an operation that frees space. An operation that frees more
/// items works in steps. On a full volume, the steps are no larger than this.
pub const FREEING_ITEMS: u64 = 40;
/// The number of leaves with these items: adjacent items, plus the leaves of a name.
const FREEING_LEAVES: u64 = 8;

/// The number and size of edits.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditCounts {
    /// Items inserted, replaced or deleted. An item edited twice counts twice.
    pub items: u64,
    /// Leaves of subvolumes with these items. Only leaves that a snapshot may share matter.
    pub leaves: u64,
    /// Bytes of inserted values.
    pub bytes: u64,
}

impl EditCounts {
    /// Creates counts of edits that insert no values and are in no subvolume.
    pub fn items(items: u64) -> EditCounts {
        EditCounts {
            items,
            ..EditCounts::default()
        }
    }

    #[must_use]
    #[inline]
    pub fn and(self, other: EditCounts) -> EditCounts {
        EditCounts {
            items: self.items.saturating_add(other.items),
            leaves: self.leaves.saturating_add(other.leaves),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Subtracts `part`, saturating at 0, and returns the subtracted counts.
    pub fn take(&mut self, part: EditCounts) -> EditCounts {
        let take = |from: &mut u64, wanted: u64| {
            let taken = wanted.min(*from);
            *from -= taken;
            taken
        };
        EditCounts {
            items: take(&mut self.items, part.items),
            leaves: take(&mut self.leaves, part.leaves),
            bytes: take(&mut self.bytes, part.bytes),
        }
    }

    /// Ignores the leaves unless a snapshot may share them.
    #[must_use]
    pub fn with_sharing(self, may_share: bool) -> EditCounts {
        EditCounts {
            leaves: if may_share { self.leaves } else { 0 },
            ..self
        }
    }
}

/// An upper bound for the changes of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditEstimate {
    pub counts: EditCounts,
    /// The operation frees space in the end, so ENOSPC must not stop it.
    pub may_use_global_reserve: bool,
}

impl EditEstimate {
    #[inline]
    pub fn items(items: u64) -> EditEstimate {
        EditEstimate {
            counts: EditCounts {
                items,
                leaves: items,
                bytes: items * 128,
            },
            may_use_global_reserve: false,
        }
    }

    /// Creates an estimate for adjacent items, such as the items of one inode.
    #[inline]
    pub fn neighbours(items: u64) -> EditEstimate {
        EditEstimate::items(items).in_leaves(2 + items / 32)
    }

    #[must_use]
    #[inline]
    pub fn in_leaves(mut self, leaves: u64) -> EditEstimate {
        self.counts.leaves = leaves.min(self.counts.items);
        self
    }

    #[must_use]
    #[inline]
    pub fn bytes(mut self, bytes: u64) -> EditEstimate {
        self.counts.bytes += bytes;
        self
    }

    /// Adds two estimates. The sum may use the global reserve if either may.
    #[must_use]
    #[inline]
    pub fn and(self, other: EditEstimate) -> EditEstimate {
        EditEstimate {
            counts: self.counts.and(other.counts),
            may_use_global_reserve: self.may_use_global_reserve || other.may_use_global_reserve,
        }
    }

    /// Subtracts `part`, saturating at 0, and returns the subtracted estimate.
    pub fn take(&mut self, part: EditEstimate) -> EditEstimate {
        EditEstimate {
            counts: self.counts.take(part.counts),
            may_use_global_reserve: self.may_use_global_reserve,
        }
    }

    /// Returns the maximum estimate of an operation that frees space, or of one step of it.
    #[inline]
    pub fn of_freeing() -> EditEstimate {
        EditEstimate::items(FREEING_ITEMS)
            .in_leaves(FREEING_LEAVES)
            .with_global_reserve()
    }

    #[must_use]
    #[inline]
    pub fn with_global_reserve(mut self) -> EditEstimate {
        self.may_use_global_reserve = true;
        self
    }
}

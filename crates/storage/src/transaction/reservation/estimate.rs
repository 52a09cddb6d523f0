//! The worst-case size of an operation's edits.

/// The number of items that the global reserve covers for an operation that frees space. An operation that frees more
/// items works in steps. On a full volume, the steps are no larger than this.
pub const FREEING_ITEMS: u64 = 40;
/// The number of leaves with these items: adjacent items, plus the leaves of a name.
const FREEING_LEAVES: u64 = 8;

/// An upper bound for the changes of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditEstimate {
    /// Items inserted, replaced or deleted.
    pub items: u64,
    /// Bytes of inserted values.
    pub bytes: u64,
    /// Leaves of subvolumes with these items.
    pub leaves: u64,
    /// The operation frees space in the end, so ENOSPC must not stop it.
    pub may_use_global_reserve: bool,
}

impl EditEstimate {
    #[inline]
    pub fn items(items: u64) -> EditEstimate {
        EditEstimate {
            items,
            bytes: items * 128,
            leaves: items,
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
        self.leaves = leaves.min(self.items);
        self
    }

    #[must_use]
    #[inline]
    pub fn bytes(mut self, bytes: u64) -> EditEstimate {
        self.bytes += bytes;
        self
    }

    /// Adds two estimates. The sum may use the global reserve if either may.
    #[must_use]
    #[inline]
    pub fn and(self, other: EditEstimate) -> EditEstimate {
        EditEstimate {
            items: self.items.saturating_add(other.items),
            bytes: self.bytes.saturating_add(other.bytes),
            leaves: self.leaves.saturating_add(other.leaves),
            may_use_global_reserve: self.may_use_global_reserve || other.may_use_global_reserve,
        }
    }

    /// Subtracts `part`, saturating at 0, and returns the subtracted estimate.
    pub fn take(&mut self, part: EditEstimate) -> EditEstimate {
        let mut take = |from: fn(&mut EditEstimate) -> &mut u64, wanted: u64| {
            let left = from(self);
            let taken = wanted.min(*left);
            *left -= taken;
            taken
        };
        EditEstimate {
            items: take(|cost| &mut cost.items, part.items),
            bytes: take(|cost| &mut cost.bytes, part.bytes),
            leaves: take(|cost| &mut cost.leaves, part.leaves),
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

//! Drops of one file's cached pages, and the buffered writes that may overlap with them.
//!
//! The kernel copies a buffered write into its pages, unlocks the pages that are up to date, and sends the write. Until
//! the answer it holds the inode lock and a reference to each page. Reclaim, `FADV_DONTNEED` and drop_caches skip
//! referenced pages. Truncations and direct writes take the lock, and so run before or after the write. A drop that
//! this mount requests respects neither. After such a drop, a read that is served before the write brings the old
//! contents back into the cache, where they would stay.
//!
//! So a write may overlap with a drop only if the drop had not ended when the file's previous write was answered. A
//! page of the write may be stale only if it was read after that drop began. From then on, reads and drops are recorded
//! by page range.
//!
//! Invariants
//! - DROPS-1: a drop is recorded before the kernel starts it, and removed after the kernel has finished it.
//! - DROPS-2: a read is recorded before it looks at the file.
//! - DROPS-3: no drop begins while a write that may not wait is served.
//!
//! Locks: none; a lock of `known` is held around each call.
//! Not here: the handling of a page that may be stale (`coherence`).

use super::span::{Span, Spans};

/// The number of a drop, unique within a file.
pub(super) type DropNr = u32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Drops {
    last: DropNr,
    under_way: Vec<(DropNr, Span)>,
    /// Ranges of finished drops that may overlap with the next write.
    over: Spans,
    /// Parts of dropped ranges that were read after the drop began.
    reread: Spans,
    /// Written ranges that page-cache contents must not replace now.
    shields: Vec<Span>,
}

impl Drops {
    /// Returns whether nothing is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.over.is_empty() && self.shields.is_empty()
    }

    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    // DROPS-1
    pub(super) fn begin(&mut self, pages: Span) -> DropNr {
        self.last = self.last.wrapping_add(1);
        self.under_way.push((self.last, pages));
        self.last
    }

    // DROPS-1
    pub(super) fn end(&mut self, number: DropNr) {
        if let Some(at) = self.under_way.iter().position(|drop| drop.0 == number) {
            let (_, pages) = self.under_way.swap_remove(at);
            self.over.insert(pages);
        }
    }

    /// Registers that pages are about to be read.
    pub(super) fn note_read(&mut self, pages: Span) {
        // DROPS-2: a read during a drop, or after it, may cache contents that the next write replaces.
        for (_, drop) in &self.under_way {
            if let Some(read) = drop.common(pages) {
                self.reread.insert(read);
            }
        }
        let read: Vec<_> = self.over.common(pages).collect();
        for part in read {
            self.reread.insert(part);
        }
    }

    /// Returns whether a buffered write of these pages may overlap with a drop.
    pub(super) fn may_meet(&self, pages: Span) -> bool {
        let meets = |drop: &(DropNr, Span)| drop.1.common(pages).is_some();
        self.over.overlaps(pages) || self.under_way.iter().any(meets)
    }

    /// Returns the pages of a buffered write that may be stale in the cache. The write is done and about to be
    /// answered. The kernel begins the file's next write after that, so finished drops cannot overlap with it.
    pub(super) fn take(&mut self, pages: Span) -> Vec<Span> {
        // Drops under way stay recorded: they may still end during the next write.
        let old = self.reread.common(pages).collect();
        self.over.clear();
        self.reread.clear();
        old
    }

    pub(super) fn raise_shield(&mut self, written: &[Span]) {
        self.shields.extend(written);
    }

    pub(super) fn lower_shield(&mut self, written: &[Span]) {
        for part in written {
            if let Some(at) = self.shields.iter().position(|shield| shield == part) {
                self.shields.swap_remove(at);
            }
        }
    }

    /// Returns the parts of a range that no shield covers.
    pub(super) fn unshielded(&self, range: Span) -> Vec<Span> {
        let mut parts = vec![range];
        for &shield in &self.shields {
            parts = parts
                .into_iter()
                .flat_map(|part| part.without(shield))
                .collect();
        }
        parts
    }
}

#[cfg(test)]
mod tests;

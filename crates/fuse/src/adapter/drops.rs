//! Drops of one file's cached pages, and which buffered writes they may have met.
//!
//! The kernel copies a buffered write into its pages, unlocks those that are up to date, and sends the write. Until the
//! answer it holds the file's lock and a reference to each of the pages. Reclaim, `FADV_DONTNEED` and drop_caches pass
//! by pages that are referenced. Truncations and direct writes take the lock, and so come before or after the write.
//! A drop that this mount asks for is held off by neither. After one a read that is served before the write brings the
//! old contents back into the cache, where they would stay.
//!
//! So a write may have met a drop only if the drop ended after the file's write before it was answered. And a page
//! of it may be old only if it was read since that drop began. Reads and drops are noted from then on, by pages.
//!
//! Invariants
//! - DROPS-1: a drop is noted before the kernel is asked, and is over after the kernel has done it.
//! - DROPS-2: a read is noted before it looks at the file.
//! - DROPS-3: no drop begins while a write is served that may not wait.
//!
//! Locks: none; a lock of `known` is held around each call.
//! Not here: what is done about a page that may be old (`coherence`).

use super::span::{Span, Spans};

/// The number of a drop among those of a file.
pub(super) type DropNr = u32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Drops {
    last: DropNr,
    under_way: Vec<(DropNr, Span)>,
    /// The ranges of drops that are over, and may have met the next write.
    over: Spans,
    /// Parts of dropped ranges that were read since.
    reread: Spans,
    /// Written ranges that contents of the cache must not replace now.
    shields: Vec<Span>,
}

impl Drops {
    /// Returns whether nothing is noted.
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

    /// Notes that pages are about to be read.
    pub(super) fn note_read(&mut self, pages: Span) {
        // DROPS-2
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

    /// Returns whether a buffered write of these pages may have met a drop.
    pub(super) fn may_meet(&self, pages: Span) -> bool {
        let meets = |drop: &(DropNr, Span)| drop.1.common(pages).is_some();
        self.over.overlaps(pages) || self.under_way.iter().any(meets)
    }

    /// Returns the pages of a buffered write that may be old in the cache. The write is done and about to be answered. The
    /// kernel begins the file's next one after that, so that drops which are over cannot meet it.
    pub(super) fn take(&mut self, pages: Span) -> Vec<Span> {
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

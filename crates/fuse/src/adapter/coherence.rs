//! Dropping cached pages that a request has made old, before the request is answered.
//!
//! Invariants
//! - COHERENCE-1: a request is answered once the kernel holds no page that is older than the request and that a program
//!   can read. Such a page is up to date and in the cache; a page that is locked to be read is not up to date.
//! - COHERENCE-2: bytes that a write has put into the file are not replaced by pages that were read before it.
//!
//! A drop waits for the locks of its pages. Most belong to requests in service, which end by themselves. Two may be held
//! until the answer that waits for the drop. The kernel locks a page for a write of a part of it, if it is not up to date.
//! And a read may wait in the kernel, which sends only so many at once in the background. Neither page has bytes that a
//! program can read, and the read will be served after this request.
//!
//! So a request waits no longer when the drop's thread has slept in the kernel through `LOOKS` looks. No request is in
//! service then that could hold a lock. For a buffered write the kernel must hold back no request either: it may be the
//! writeback of an old page that is dirty. And the kernel must not show an old page that is up to date. A lock that the
//! kernel takes for itself, in reclaim or migration, is over long before. The drop goes on, and counts as under way
//! until it is over.
//!
//! Not here: which pages may be old (`drops`), requests in service (`known::in_service`), threads that ask the kernel
//! (`request::Notifier`).

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_engine::{FileId, Volume};
use ubtrfs_fuse_server::request::{NodeId, PageDrop, Result};

use super::Adapter;
use super::changes::Changes;
use super::errno::errno;
use super::known::{KnownNodes, StoresBefore};
use super::source::Source;
use super::span::Span;

/// The time between two looks at a drop that does not end.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 20;
const LOOKS_WHERE_UNSURE: u32 = 10 * LOOKS;

/// The thread that asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// The request's, if not too many do. The kernel holds no lock of a page for the request.
    ThisThread,
    Another,
}

/// A sight of a page whose lock a drop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is not up to date, or has the bytes of the write.
    Harmless,
    /// It is up to date and older than the write.
    Old,
    /// Other kernels than 6.18, which was tried, may show pages that are not up to date.
    Unsure,
}

impl Look {
    /// Judges by the bytes that the kernel showed of a page. Those of the write begin at `at` in it. The kernel shows
    /// none of a page that is not up to date, and none behind the end of the file that it knows.
    fn at(cached: &[u8], at: usize, written: &[u8]) -> Self {
        let seen = cached.get(at..).unwrap_or_default();
        if cached.is_empty() || seen.starts_with(written) {
            Look::Harmless
        } else if written.starts_with(seen) {
            Look::Unsure
        } else {
            Look::Old
        }
    }
}

/// Has the kernel drop pages on a thread of its own. It is noted as under way until it is over.
pub(super) fn begin_drop(
    changes: &Changes,
    known: &Arc<KnownNodes>,
    node: NodeId,
    range: Span,
) -> Arc<PageDrop> {
    let number = known.begin_drop(node.0, range.rounded(changes.folio_bytes()));
    let known = Arc::clone(known);
    let over = Box::new(move || known.end_drop(node.0, number));
    changes.drop_pages(node, range, over)
}

impl<S: Source> Adapter<S> {
    /// Has the kernel drop the pages of a direct write. It has dropped them before it sent the write. Those that were
    /// read since are older than the write, as attributes may be. The kernel itself drops them again only if a thread
    /// waits for the write (no AIO). A write that failed may have changed a part.
    pub(super) fn drop_written_past_cache(&self, node: NodeId, range: Span) {
        if self.known.may_have_pages(node.0) {
            self.drop_and_wait(node, range, Asker::ThisThread, None);
        } else {
            self.changes.drop_attributes(node);
        }
    }

    /// Has the kernel drop pages that a request may have changed which is about to fail. The kernel holds the lock of the
    /// file until the answer, and so sends no buffered write that could meet this. A thread that may not wait has changed
    /// all or nothing.
    pub(super) fn drop_partly_changed(&self, node: NodeId, range: Span) {
        if !nonblocking::is_set() {
            self.drop_and_wait(node, range, Asker::ThisThread, None);
        }
    }

    /// Has the kernel drop pages of a buffered write that were read after they had been dropped and before the write was
    /// done. One may be dirty by a mapping. The kernel writes it before it drops it, with old bytes in place of the
    /// write's. So those are kept, and put once more if such a page came before.
    pub(super) fn drop_old(
        &self,
        volume: &Volume,
        (node, id): (NodeId, FileId),
        (offset, bytes): (u64, &[u8]),
        old: Vec<Span>,
        before: StoresBefore,
    ) -> Result<()> {
        // COHERENCE-2
        let range = Span::new(offset, bytes.len() as u64);
        let written: Vec<_> = old.iter().filter_map(|pages| pages.common(range)).collect();
        let (_shield, may_be_replaced) = self.known.raise_shield(node.0, &written, before);
        let mut outcome = Ok(());
        if may_be_replaced {
            let put = |part: &Span| volume.write(id, part.start, part.of(range.start, bytes));
            outcome = written.iter().try_for_each(put).map_err(errno);
        }
        // Also if that has failed: a part is done.
        for pages in old {
            self.drop_and_wait(node, pages, Asker::Another, Some((offset, bytes)));
        }
        outcome
    }

    /// Has the kernel drop the pages for a write that has failed, and may have changed a part.
    pub(super) fn drop_old_of_failed(&self, node: NodeId, old: Vec<Span>) {
        for pages in old {
            self.drop_and_wait(node, pages, Asker::Another, None);
        }
    }

    /// Looks at the last of some pages, which the kernel may have locked for a write of a part of it.
    fn look_at_last(&self, node: NodeId, pages: Span, (offset, bytes): (u64, &[u8])) -> Look {
        let page_bytes = self.changes.page_bytes();
        let start = pages.end.saturating_sub(1) / page_bytes * page_bytes;
        let written = Span::new(offset, bytes.len() as u64);
        let Some(part) = (Span { start, ..pages }).common(written) else {
            return Look::Unsure;
        };
        let asked = Span { start, ..part };
        match self.changes.cached(node, asked) {
            None => Look::Unsure,
            Some(cached) => Look::at(
                &cached,
                (part.start - start) as usize,
                part.of(offset, bytes),
            ),
        }
    }

    // COHERENCE-1
    fn drop_and_wait(&self, node: NodeId, range: Span, asker: Asker, write: Option<(u64, &[u8])>) {
        if asker == Asker::ThisThread {
            let pages = range.rounded(self.changes.folio_bytes());
            let number = self.known.begin_drop(node.0, pages);
            let is_over = self.changes.drop_pages_here(node, range);
            self.known.end_drop(node.0, number);
            if is_over {
                return;
            }
        }
        let drop = begin_drop(&self.changes, &self.known, node, range);
        let mut looks = 0;
        while !drop.wait(LOOK) {
            // A direct write has no order with a page that a mapping has made dirty.
            let only_waits = drop.is_asleep()
                && !self.known.may_hold_page(node.0)
                && (asker == Asker::ThisThread || self.known.holds_none_back());
            looks = if only_waits { looks + 1 } else { 0 };
            if looks == 0 || looks % LOOKS != 0 {
                continue;
            }
            let may_end = match write.map(|write| self.look_at_last(node, range, write)) {
                None | Some(Look::Harmless) => true,
                Some(Look::Old) => false,
                Some(Look::Unsure) => looks >= LOOKS_WHERE_UNSURE,
            };
            if may_end {
                tracing::debug!(node = node.0, ?range, "the kernel holds the lock of a page");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_up_to_date_and_has_other_bytes_is_old() {
        assert_eq!(Look::at(b"", 2, b"new"), Look::Harmless);
        assert_eq!(Look::at(b"..new", 2, b"new"), Look::Harmless);
        assert_eq!(Look::at(b"..old", 2, b"new"), Look::Old);
        assert_eq!(Look::at(b"..o", 2, b"new"), Look::Old);
        assert_eq!(Look::at(b"..n", 2, b"new"), Look::Unsure);
        assert_eq!(Look::at(b".", 2, b"new"), Look::Unsure);
    }
}

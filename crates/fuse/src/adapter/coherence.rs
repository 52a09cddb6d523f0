//! Invalidation of cached pages that a request has made stale, before the request is answered.
//!
//! Invariants
//! - COHERENCE-1: a request is answered only when the page cache holds no page that is older than the request and
//!   readable by programs. A readable page is up to date and in the cache; a page locked for a read is not up to date.
//! - COHERENCE-2: pages that were read before a write never replace the bytes of the write in the file.
//!
//! A drop waits for the locks of its pages. Most locks belong to requests in service, which finish by themselves. Two
//! kinds may be held until the request that waits for the drop is answered. First, the kernel locks a page that is not
//! up to date for a partial write. Second, a read may be queued in the kernel, which limits its background requests.
//! Neither page has bytes that a program can read, and the read will be served after this request.
//!
//! So a request stops waiting when the drop's thread has slept in the kernel for `LOOKS` polls. By then no request in
//! service can hold a lock. A buffered write has two further conditions. The kernel must hold back no request, which
//! may be the writeback of a stale dirty page. And the kernel must not return a stale page that is up to date. Locks
//! that the kernel takes for reclaim or migration are released long before. The drop continues, and counts as under way
//! until it is done.
//!
//! Not here: which pages may be stale (`drops`), requests in service (`known::in_service`), threads that notify the
//! kernel (`request::Notifier`).

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_fs::{FileId, Volume};
use ubtrfs_fuse_server::request::{NodeId, PageDrop, Result};

use super::Adapter;
use super::changes::Changes;
use super::errno::errno;
use super::known::{KnownNodes, StoresBefore};
use super::source::Source;
use super::span::Span;

/// The interval at which an unfinished drop is checked.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 20;
const LOOKS_WHERE_UNSURE: u32 = 10 * LOOKS;

/// The thread that makes the kernel drop pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DropThread {
    /// The thread of the request, unless too many already do. The kernel holds no page lock for the request.
    ThisThread,
    Another,
}

/// The state of a page whose lock a drop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Not up to date, or has the bytes of the write.
    Harmless,
    /// Up to date and older than the write.
    Old,
    /// Kernels other than the tested 6.18 may return pages that are not up to date.
    Unsure,
}

impl Look {
    /// Compares the bytes that the kernel returned for a page with the write, which begins at `at` in the page. The
    /// kernel returns no bytes of a page that is not up to date, and none past its i_size.
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

/// Starts to drop pages on a thread of its own. The drop counts as under way until it is done.
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
    /// Drops the cached pages of a direct write. The kernel has dropped them before it sent the write. Pages and
    /// attributes that were read since may be older than the write. The kernel drops them again only if a thread waits
    /// for the write (no AIO). A failed write may have changed a part.
    pub(super) fn drop_written_past_cache(&self, node: NodeId, range: Span) {
        if self.known.may_have_pages(node.0) {
            self.drop_and_wait(node, range, DropThread::ThisThread, None);
        } else {
            self.changes.drop_attributes(node);
        }
    }

    /// Drops pages that a failing request may have changed. The kernel holds the inode lock until the answer, and so
    /// sends no buffered write that could overlap with this. A thread that must not wait has changed all or nothing.
    pub(super) fn drop_partly_changed(&self, node: NodeId, range: Span) {
        if !nonblocking::is_set() {
            self.drop_and_wait(node, range, DropThread::ThisThread, None);
        }
    }

    /// Drops pages of a buffered write that were read again between an earlier drop and the end of the write. Such a
    /// page may have been dirtied through a mapping. Then the kernel writes it back before it drops it, and so
    /// overwrites the write with old bytes. A shield keeps the written bytes; they are written once more if such a
    /// writeback was earlier.
    pub(super) fn drop_old(
        &self,
        volume: &Volume,
        (node, id): (NodeId, FileId),
        (offset, bytes): (u64, &[u8]),
        old: Vec<Span>,
        before: StoresBefore,
    ) -> Result<()> {
        // COHERENCE-2: the shield is raised before the pages are dropped, as a drop may write them back.
        let range = Span::new(offset, bytes.len() as u64);
        let written: Vec<_> = old.iter().filter_map(|pages| pages.common(range)).collect();
        let (_shield, may_be_replaced) = self.known.raise_shield(node.0, &written, before);
        let mut outcome = Ok(());
        if may_be_replaced {
            let put = |part: &Span| volume.write(id, part.start, part.of(range.start, bytes));
            outcome = written.iter().try_for_each(put).map_err(errno);
        }
        // Drops also after a failed write: a part of it may be in the file.
        for pages in old {
            self.drop_and_wait(node, pages, DropThread::Another, Some((offset, bytes)));
        }
        outcome
    }

    /// Drops the pages of a failed write, which may have changed a part.
    pub(super) fn drop_old_of_failed(&self, node: NodeId, old: Vec<Span>) {
        for pages in old {
            self.drop_and_wait(node, pages, DropThread::Another, None);
        }
    }

    /// Looks at the last one of some pages, which the kernel may have locked for a partial write.
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
    fn drop_and_wait(
        &self,
        node: NodeId,
        range: Span,
        thread: DropThread,
        write: Option<(u64, &[u8])>,
    ) {
        if thread == DropThread::ThisThread {
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
        // The loop polls: the kernel does not report that a page lock is held on behalf of the request that waits here.
        while !drop.wait(LOOK) {
            // A direct write is not ordered with pages that a mapping has dirtied, so it ignores held-back requests.
            let only_waits = drop.is_asleep()
                && !self.known.may_hold_page(node.0)
                && (thread == DropThread::ThisThread || self.known.holds_none_back());
            // Only consecutive polls count. A thread that ran in between has made progress.
            looks = if only_waits { looks + 1 } else { 0 };
            if looks == 0 || looks % LOOKS != 0 {
                continue;
            }
            // Stops waiting only if no program can read old bytes: see the head.
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

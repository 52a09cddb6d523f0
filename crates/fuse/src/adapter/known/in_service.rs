//! Requests that touch the pages of a file, from their arrival until they are served.
//!
//! Invariants
//! - SERVICE-1: a drop begins only while no write that may not wait is in service (DROPS-3). While a drop waits to
//!   begin, new writes of this kind are turned away, so the drop cannot starve.
//! - SERVICE-2: once a shield is raised, no dirty page overwrites the bytes that it covers in the file.
//!
//! Locks: a node's shard, which is not held while a request is served.

use std::sync::atomic::{AtomicUsize, Ordering};

use ubtrfs_fuse_server::BACKGROUND_MIN;

use super::super::drops::{DropNr, Drops};
use super::super::span::Span;
use super::{KnownNodes, Node, Nodes};

/// A request that the kernel may have sent in the background; ends on drop.
#[derive(Debug)]
pub(in super::super) struct Background<'a>(&'a AtomicUsize);

/// A read in service; ends on drop.
#[derive(Debug)]
pub(in super::super) struct Read<'a> {
    known: &'a KnownNodes,
    node: u64,
    /// Its index in the node's counts.
    at: usize,
    _background: Background<'a>,
}

/// A buffered write on a thread that may not wait; ends on drop.
#[derive(Debug)]
pub(in super::super) struct QuickWrite<'a>(&'a KnownNodes, u64);

/// A write of dirty pages; ends on drop.
#[derive(Debug)]
pub(in super::super) struct Store<'a> {
    known: &'a KnownNodes,
    node: u64,
    number: u64,
    _background: Background<'a>,
}

/// Protects written bytes from stale dirty pages; ends on drop.
#[derive(Debug)]
pub(in super::super) struct Shield<'a> {
    known: &'a KnownNodes,
    node: u64,
    written: &'a [Span],
}

/// The writes of dirty pages of a file up to a moment.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct StoresBefore {
    last: u64,
    were_in_service: bool,
}

impl Node {
    fn drops_mut(&mut self) -> &mut Drops {
        self.drops.get_or_insert_default()
    }

    fn tidy_drops(&mut self) {
        if self.drops.as_ref().is_some_and(|drops| drops.is_empty()) {
            self.drops = None;
        }
    }
}

fn count_waiting(nodes: &mut Nodes, node: u64, change: i32) {
    if let Some(node) = nodes.get_mut(&node) {
        let waiting = &mut node.in_service.waiting_drops;
        *waiting = waiting.saturating_add_signed(change);
    }
}

impl KnownNodes {
    /// Returns whether the kernel may hold pages of a file.
    pub(in super::super) fn may_have_pages(&self, node: u64) -> bool {
        self.with(node, |node| node.may_have_pages).unwrap_or(false)
    }

    /// Registers a request that the kernel may have sent in the background.
    pub(in super::super) fn begin_in_background(&self) -> Background<'_> {
        self.in_background.fetch_add(1, Ordering::Relaxed);
        Background(&self.in_background)
    }

    /// Returns whether the kernel has sent all its background requests, and holds none back.
    pub(in super::super) fn holds_none_back(&self) -> bool {
        self.in_background.load(Ordering::Relaxed) < usize::from(BACKGROUND_MIN)
    }

    /// Registers that pages are about to be read.
    pub(in super::super) fn begin_read(&self, node: u64, pages: Span) -> Read<'_> {
        let at = self.with(node, |node| {
            node.may_have_pages = true;
            if let Some(drops) = &mut node.drops {
                drops.note_read(pages);
            }
            let service = &mut node.in_service;
            service.reads[service.reads_now] += 1;
            service.reads_now
        });
        Read {
            known: self,
            node,
            at: at.unwrap_or(0),
            _background: self.begin_in_background(),
        }
    }

    /// Registers a buffered write on a thread that may not wait. `None` means that another thread has to serve it.
    pub(in super::super) fn begin_quick_write(
        &self,
        node: u64,
        pages: Span,
    ) -> Option<QuickWrite<'_>> {
        let begun = self.with(node, |node| {
            // SERVICE-1
            let may_meet = |drops: &Drops| drops.may_meet(pages);
            // Also refuses while a drop may overlap, since `drop_old` would have to wait for the kernel.
            if node.in_service.waiting_drops > 0 || node.drops.as_deref().is_some_and(may_meet) {
                return false;
            }
            node.may_have_pages = true;
            node.in_service.quick_writes += 1;
            true
        });
        begun.unwrap_or(true).then(|| QuickWrite(self, node))
    }

    /// Registers a buffered write on a thread that may wait.
    pub(in super::super) fn begin_write(&self, node: u64) -> StoresBefore {
        let stores = self.with(node, |node| {
            node.may_have_pages = true;
            StoresBefore {
                last: node.in_service.last_store,
                were_in_service: !node.in_service.stores.is_empty(),
            }
        });
        stores.unwrap_or(StoresBefore {
            last: 0,
            were_in_service: false,
        })
    }

    /// Returns the pages of a buffered write that may be stale in the cache. The write is done and about to be
    /// answered.
    pub(in super::super) fn take_old(&self, node: u64, pages: Span) -> Vec<Span> {
        let old = self.with(node, |node| {
            let old = node.drops.as_mut().map(|drops| drops.take(pages));
            node.tidy_drops();
            old
        });
        old.flatten().unwrap_or_default()
    }

    /// Registers that dirty pages are about to be written. Returns the parts that no shield covers.
    pub(in super::super) fn begin_store(&self, node: u64, range: Span) -> (Store<'_>, Vec<Span>) {
        let begun = self.with(node, |node| {
            let service = &mut node.in_service;
            service.last_store += 1;
            service.stores.push(service.last_store);
            // SERVICE-2
            let parts = node.drops.as_ref().map(|drops| drops.unshielded(range));
            (service.last_store, parts)
        });
        let (number, parts) = begun.unwrap_or((0, None));
        let store = Store {
            known: self,
            node,
            number,
            _background: self.begin_in_background(),
        };
        (store, parts.unwrap_or_else(|| vec![range]))
    }

    /// Protects ranges from stale dirty pages. Waits for writes of such pages that began earlier. Returns whether there
    /// were any since `before`, which may have overwritten bytes.
    pub(in super::super) fn raise_shield<'a>(
        &'a self,
        node: u64,
        written: &'a [Span],
        before: StoresBefore,
    ) -> (Shield<'a>, bool) {
        let shard = self.shard(node);
        let mut nodes = shard.nodes.lock();
        let mut last = None;
        if let Some(node) = nodes.get_mut(&node) {
            node.drops_mut().raise_shield(written);
            last = Some(node.in_service.last_store);
        }
        // SERVICE-2: stores that begin from here on see the shield.
        // Only earlier stores are waited for, so a stream of new ones cannot delay the write forever.
        let is_old = |store: &u64| last.is_some_and(|last| *store <= last);
        while nodes
            .get(&node)
            .is_some_and(|node| node.in_service.stores.iter().any(is_old))
        {
            shard.served.wait(&mut nodes);
        }
        let shield = Shield {
            known: self,
            node,
            written,
        };
        // Stores in service at `before` may have written after the buffered write, so they count as well.
        let has_come = last.is_some_and(|last| last != before.last);
        (shield, has_come || before.were_in_service)
    }

    /// Registers a drop before the kernel is notified.
    pub(in super::super) fn begin_drop(&self, node: u64, pages: Span) -> DropNr {
        let shard = self.shard(node);
        let mut nodes = shard.nodes.lock();
        // SERVICE-1
        let is_busy = |nodes: &mut Nodes| {
            nodes
                .get(&node)
                .is_some_and(|node| node.in_service.quick_writes > 0)
        };
        if is_busy(&mut nodes) {
            count_waiting(&mut nodes, node, 1);
            shard.served.wait_while(&mut nodes, is_busy);
            count_waiting(&mut nodes, node, -1);
        }
        match nodes.get_mut(&node) {
            Some(node) => node.drops_mut().begin(pages),
            // KNOWN-4
            None => shard
                .left_drops
                .lock()
                .entry(node)
                .or_default()
                .begin(pages),
        }
    }

    /// Registers that the kernel has dropped the pages.
    pub(in super::super) fn end_drop(&self, node: u64, number: DropNr) {
        let shard = self.shard(node);
        let mut nodes = shard.nodes.lock();
        if let Some(node) = nodes.get_mut(&node) {
            if let Some(drops) = &mut node.drops {
                drops.end(number);
            }
            return;
        }
        // KNOWN-4
        let mut left = shard.left_drops.lock();
        if let Some(drops) = left.get_mut(&node) {
            drops.end(number);
            if !drops.is_under_way() {
                left.remove(&node);
            }
        }
    }

    /// Returns whether a request that may hold a page lock was in service since the last call. A drop that waits for a
    /// lock gets it when the holder ends, regardless of requests that began later.
    pub(in super::super) fn may_hold_page(&self, node: u64) -> bool {
        let may_hold = |node: &mut Node| {
            let service = &mut node.in_service;
            // Reads are counted in two generations. The generations swap once the earlier one is empty, so a read that
            // begins between two calls counts as earlier only at a later call.
            let earlier = service.reads[1 - service.reads_now];
            if earlier == 0 {
                service.reads_now = 1 - service.reads_now;
            }
            earlier > 0 || !service.stores.is_empty()
        };
        self.with(node, may_hold).unwrap_or(false)
    }

    fn end(&self, node: u64, end: impl FnOnce(&mut Node)) {
        if self.with(node, end).is_some() {
            self.shard(node).served.notify_all();
        }
    }
}

// The kernel keeps a node while it has a request. If a count is already 0, the kernel has looked up the node again.
impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.known.with(self.node, |node| {
            let reads = &mut node.in_service.reads[self.at];
            *reads = reads.saturating_sub(1);
        });
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for QuickWrite<'_> {
    fn drop(&mut self) {
        self.0.end(self.1, |node| {
            node.in_service.quick_writes = node.in_service.quick_writes.saturating_sub(1);
        });
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        let number = self.number;
        let is_other = |store: &u64| *store != number;
        self.known
            .end(self.node, |node| node.in_service.stores.retain(is_other));
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        self.known.with(self.node, |node| {
            if let Some(drops) = &mut node.drops {
                drops.lower_shield(self.written);
            }
            node.tidy_drops();
        });
    }
}

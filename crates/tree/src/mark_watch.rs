//! The marks of makers in the blocks that a writable volume reads.
//!
//! Some marks are only in inodes or extents. So a volume may already be open for writing when the first is read. The
//! watcher then ends write access, before the reader gets the block.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use ubtrfs_format::maker::Marks;
use ubtrfs_format::node::Node;

/// The owner of write access.
pub trait MarkWatcher: Debug + Send + Sync {
    /// Ends write access. Called for each block with marks, with all marks so far.
    ///
    /// Locks: called with any locks held.
    fn marks_found(&self, marks: Marks);
}

#[derive(Debug)]
pub(crate) struct MarkWatch {
    is_enabled: bool,
    found: AtomicU64,
    watcher: OnceLock<Weak<dyn MarkWatcher>>,
}

impl MarkWatch {
    pub(crate) fn new(is_enabled: bool) -> MarkWatch {
        MarkWatch {
            is_enabled,
            found: AtomicU64::new(0),
            watcher: OnceLock::new(),
        }
    }

    pub(crate) fn found(&self) -> Marks {
        Marks::from_bits(self.found.load(Ordering::SeqCst))
    }

    pub(crate) fn set_watcher(&self, watcher: Weak<dyn MarkWatcher>) {
        let _ = self.watcher.set(watcher);
    }

    /// Looks for marks in a verified block.
    pub(crate) fn note(&self, node: Node<'_>) {
        if !self.is_enabled {
            return;
        }
        let marks = Marks::of_block(node);
        if marks.is_empty() {
            return;
        }
        let before = Marks::from_bits(self.found.fetch_or(marks.bits(), Ordering::SeqCst));
        // Called for each such block: another thread may have found the first one, and not called yet.
        if let Some(watcher) = self.watcher.get().and_then(Weak::upgrade) {
            watcher.marks_found(before.union(marks));
        }
    }
}

//! Writes to append-only files whose opening was not checked.
//!
//! The kernel splits a large direct write into parts and sends them all at once. They may finish in any order, so the
//! current file size does not show whether a part is an append. A write to bytes that were already written is refused.
//!
//! Invariants
//! - APPENDS-1: a part is admitted if it begins at or after the size that the file had while idle, and overlaps no
//!   other part.
//! - APPENDS-2: a part that was not written, for example because another thread has to repeat it, leaves its range to
//!   others.
//! - APPENDS-3: a file is remembered while parts of it are under way, or while a part before a written one is missing.
//! - APPENDS-4: if a part fails, the whole write fails, and the kernel truncates the file to its former size. The rest
//!   of the failed part is not written later: once nothing is under way, the next part starts a new run.
//!
//! Locks: one for all files. The size is read under it, so a thread that must not wait only tries it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use parking_lot::Mutex;
use ubtrfs_device::nonblocking;
use ubtrfs_fuse_server::request::{Errno, Result};

use super::source::FileId;

#[derive(Debug, Default)]
pub(super) struct Appends(Mutex<HashMap<FileId, Run>>);

/// A run of writes past the end of a file.
#[derive(Debug)]
struct Run {
    /// The file size when the first part arrived.
    begin: u64,
    /// The end of the contiguously written range.
    end: u64,
    parts: Vec<Part>,
    has_failed: bool,
}

#[derive(Debug)]
struct Part {
    range: Range<u64>,
    is_written: bool,
}

/// The outcome of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    Failed,
    /// The part will be sent again.
    Postponed,
}

/// An admitted part. Dropping it without an outcome means that the part will be sent again.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    appends: &'a Appends,
    id: FileId,
    range: Range<u64>,
}

impl Appends {
    /// Admits a part, or refuses it.
    pub(super) fn enter(
        &self,
        id: FileId,
        range: Range<u64>,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<Admitted<'_>> {
        let mut runs = if nonblocking::is_set() {
            self.0.try_lock().ok_or(Errno::WOULD_BLOCK)?
        } else {
            self.0.lock()
        };
        // APPENDS-4
        if runs.get(&id).is_none_or(Run::is_given_up) {
            let end = size()?;
            if range.start < end {
                return Err(Errno::PERM);
            }
            runs.insert(id, Run::new(end));
        }
        let run = runs.entry(id).or_insert_with(|| Run::new(range.start));
        let overlaps = |part: &Part| part.range.start < range.end && range.start < part.range.end;
        // APPENDS-1
        // `run.end` covers the contiguously written range, and `parts` all parts under way or after a gap.
        if range.start < run.end || run.parts.iter().any(overlaps) {
            return Err(Errno::PERM);
        }
        run.parts.push(Part {
            range: range.clone(),
            is_written: false,
        });
        Ok(Admitted {
            appends: self,
            id,
            range,
        })
    }

    /// Returns whether the kernel may truncate a file to this size to undo a failed write. It does so once.
    pub(super) fn take_back(&self, id: FileId, size: u64) -> Result<bool> {
        let mut runs = self.0.lock();
        let is_it = |run: &Run| run.is_given_up() && run.begin == size;
        if !runs.get(&id).is_some_and(is_it) {
            return Ok(false);
        }
        // A thread that must not wait does not truncate, either.
        nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        Ok(runs.remove(&id).is_some())
    }

    fn leave(&self, id: FileId, range: &Range<u64>, outcome: Outcome) {
        let mut runs = self.0.lock();
        let Entry::Occupied(mut run) = runs.entry(id) else {
            return;
        };
        run.get_mut().leave(range, outcome);
        // APPENDS-3
        if run.get().is_over() {
            run.remove();
        }
    }

    /// Forgets a file whose flags were set. It may have been truncated while it was not append-only.
    pub(super) fn forget(&self, id: FileId) {
        self.0.lock().remove(&id);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Run {
    fn new(end: u64) -> Run {
        Run {
            begin: end,
            end,
            parts: Vec::new(),
            has_failed: false,
        }
    }

    fn leave(&mut self, range: &Range<u64>, outcome: Outcome) {
        self.parts.retain(|part| part.range != *range);
        self.has_failed |= outcome == Outcome::Failed;
        if outcome != Outcome::Written {
            return;
        }
        // Merges the part with adjacent written parts, so that the list stays short for any order of completion.
        let mut whole = range.clone();
        self.parts.retain(|part| {
            let is_before = part.range.end == whole.start;
            let is_behind = part.range.start == whole.end;
            let joins = part.is_written && (is_before || is_behind);
            if joins {
                whole = whole.start.min(part.range.start)..whole.end.max(part.range.end);
            }
            !joins
        });
        if whole.start == self.end {
            self.end = whole.end;
        } else {
            self.parts.push(Part {
                range: whole,
                is_written: true,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.parts.is_empty() && !self.has_failed
    }

    /// Returns whether the run has failed, and nothing of it is under way.
    fn is_given_up(&self) -> bool {
        self.has_failed && self.parts.iter().all(|part| part.is_written)
    }
}

impl Admitted<'_> {
    pub(super) fn written(self) {
        self.leave(Outcome::Written);
    }

    pub(super) fn failed(self) {
        self.leave(Outcome::Failed);
    }

    fn leave(self, outcome: Outcome) {
        self.appends.leave(self.id, &self.range, outcome);
        // Skips `drop`, which would report the part as postponed.
        std::mem::forget(self);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        // APPENDS-2
        self.appends.leave(self.id, &self.range, Outcome::Postponed);
    }
}

#[cfg(test)]
mod tests;

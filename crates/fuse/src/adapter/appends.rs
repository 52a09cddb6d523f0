//! Writes to append-only files by who was not asked when it opened.
//!
//! A large direct write comes in parts, all sent at once: any of them may be done first, and then the file's size says
//! nothing of the others. What is refused is to write where something was written before.
//!
//! Invariants
//! - APPENDS-1: a part is let in if it lies behind the file as it was when nothing was being written, and overlaps no
//!   other part.
//! - APPENDS-2: a part that was not written leaves its place to others, as when it is to be repeated elsewhere.
//! - APPENDS-3: a file is remembered while parts of it are under way, or are missing before others.
//!
//! Locks: one for all files. The size is read under it, so who must not wait only tries it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use parking_lot::Mutex;
use ubtrfs_device::waiting;

use super::source::FileId;
use crate::request::{Errno, Result};

#[derive(Debug, Default)]
pub(super) struct Appends(Mutex<HashMap<FileId, Run>>);

/// What follows the end of a file.
#[derive(Debug)]
struct Run {
    /// Where the file ended when the first part came.
    end: u64,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    range: Range<u64>,
    is_written: bool,
}

/// A part that was let in. It counts as not written until it says that it was.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    appends: &'a Appends,
    id: FileId,
    range: Range<u64>,
}

impl Appends {
    /// Lets a part in, or refuses it.
    pub(super) fn enter(
        &self,
        id: FileId,
        range: Range<u64>,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<Admitted<'_>> {
        let mut runs = match waiting::is_forbidden() {
            true => self.0.try_lock().ok_or(Errno::WOULD_WAIT)?,
            false => self.0.lock(),
        };
        let run = match runs.entry(id) {
            Entry::Occupied(run) => run.into_mut(),
            Entry::Vacant(place) => {
                let end = size()?;
                if range.start < end {
                    return Err(Errno::PERM);
                }
                let parts = Vec::new();
                place.insert(Run { end, parts })
            }
        };
        let overlaps = |part: &Part| part.range.start < range.end && range.start < part.range.end;
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

    fn leave(&self, id: FileId, range: &Range<u64>, is_written: bool) {
        let mut runs = self.0.lock();
        let Entry::Occupied(mut run) = runs.entry(id) else {
            return;
        };
        run.get_mut().leave(range, is_written);
        if run.get().is_over() {
            run.remove();
        }
    }

    /// Its flags were set: it may have been cut when it was not append-only.
    pub(super) fn forget(&self, id: FileId) {
        self.0.lock().remove(&id);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Run {
    fn leave(&mut self, range: &Range<u64>, is_written: bool) {
        self.parts.retain(|part| part.range != *range);
        if !is_written {
            return;
        }
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
                is_written,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.parts.is_empty()
    }
}

impl Admitted<'_> {
    pub(super) fn written(self) {
        self.appends.leave(self.id, &self.range, true);
        std::mem::forget(self);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.appends.leave(self.id, &self.range, false);
    }
}

#[cfg(test)]
mod tests;

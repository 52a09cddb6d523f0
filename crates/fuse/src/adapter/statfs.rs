//! What `statfs` said last.
//!
//! It takes a walk over all block groups, and programs ask again and again: an answer is good for a moment, and on a
//! volume that does not change for good.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::request::{Result, StatFs};

const MOMENT: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct KnownStatFs {
    known: Mutex<Option<(Instant, StatFs)>>,
}

impl KnownStatFs {
    /// What is known, or what `ask` finds out.
    pub(super) fn get(
        &self,
        changes: bool,
        ask: impl FnOnce() -> Result<StatFs>,
    ) -> Result<StatFs> {
        let known = *self.known.lock();
        if let Some((at, known)) = known
            && (!changes || at.elapsed() < MOMENT)
        {
            return Ok(known);
        }
        let asked = Instant::now();
        let found = ask()?;
        *self.known.lock() = Some((asked, found));
        Ok(found)
    }

    /// Something was done that shows in it, and that somebody waited for.
    pub(super) fn forget(&self) {
        *self.known.lock() = None;
    }
}

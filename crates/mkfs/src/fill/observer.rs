//! Progress events and cancellation of a fill.

use std::fmt;
use std::path::{Path, PathBuf};

use ubtrfs_format::key::Key;

use crate::error::MkfsError;
use crate::files::Push;

/// Number of tree items between checks for cancellation.
const ITEMS_BETWEEN: u32 = 1 << 12;

/// An observer of a fill.
pub trait FillObserver {
    /// Receives the path of the next file, relative to the root of the source. The path of the root is empty.
    fn begin(&mut self, path: &Path) {
        let _ = path;
    }

    /// Receives the length of data that was read from the source.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Returns whether to cancel the fill. Called before each file, for each part of its data, and while the trees are
    /// built, so it should be fast.
    fn is_cancelled(&mut self) -> bool {
        false
    }
}

/// The observer of a fill, if there is one.
#[derive(Default)]
pub(super) struct Watch<'o> {
    observer: Option<&'o mut dyn FillObserver>,
    /// Whether all files were already reported.
    has_met_files: bool,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl<'o> Watch<'o> {
    pub(super) fn new(observer: Option<&'o mut dyn FillObserver>) -> Watch<'o> {
        Watch {
            observer,
            has_met_files: false,
        }
    }

    /// Lends the observer for a part of the work.
    pub(super) fn lend(&mut self) -> Watch<'_> {
        let observer: Option<&mut dyn FillObserver> = match &mut self.observer {
            Some(observer) => Some(&mut **observer),
            None => None,
        };
        Watch {
            observer,
            has_met_files: self.has_met_files,
        }
    }

    /// Marks all files as reported. If they are processed again, the observer is only checked for cancellation.
    pub(super) fn end_files(&mut self) {
        self.has_met_files = true;
    }

    pub(super) fn begin(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), MkfsError> {
        self.ask()?;
        if let Some(observer) = self.observer.as_mut().filter(|_| !self.has_met_files) {
            observer.begin(&path());
        }
        Ok(())
    }

    pub(super) fn transferred(&mut self, len_bytes: u64) -> Result<(), MkfsError> {
        if let Some(observer) = self.observer.as_mut().filter(|_| !self.has_met_files) {
            observer.transferred(len_bytes);
        }
        self.ask()
    }

    /// Fails if the observer cancels the work.
    pub(super) fn ask(&mut self) -> Result<(), MkfsError> {
        let observer = self.observer.as_mut();
        if observer.is_some_and(|observer| observer.is_cancelled()) {
            Err(MkfsError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Passes items through, and regularly checks for cancellation.
    pub(super) fn pass_items(
        &mut self,
        push: &mut Push<'_>,
        each: impl FnOnce(&mut Push<'_>) -> Result<(), MkfsError>,
    ) -> Result<(), MkfsError> {
        let mut passed = 0;
        each(&mut |key: Key, data: &[u8]| {
            passed += 1;
            if passed % ITEMS_BETWEEN == 0 {
                self.ask()?;
            }
            push(key, data)
        })
    }
}

//! How far the filling of a volume is, as a program hears of it.

use std::fmt;
use std::path::{Path, PathBuf};

use ubtrfs_format::key::Key;

use crate::error::MkfsError;
use crate::files::Push;

/// Items of trees that go by before the observer is asked again.
const ITEMS_BETWEEN: u32 = 1 << 12;

/// A listener to the filling of a volume.
pub trait FillObserver {
    /// Hears that the file at `path` of the source is next; its root has an empty path.
    fn begin(&mut self, path: &Path) {
        let _ = path;
    }

    /// Hears that so many bytes of data were taken from the source.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Tells whether the filling is to end now. It is asked before each file, with each part of its data, and while
    /// trees are made, so the answer should be quick.
    fn is_cancelled(&mut self) -> bool {
        false
    }
}

/// The observer of a filling, if there is one.
#[derive(Default)]
pub(super) struct Watch<'o> {
    observer: Option<&'o mut dyn FillObserver>,
    /// The files have been observed.
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

    /// Notes that all files were observed: where they are met again, the observer is asked for the end alone.
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

    /// Ends the work if the observer wants that.
    pub(super) fn ask(&mut self) -> Result<(), MkfsError> {
        let observer = self.observer.as_mut();
        match observer.is_some_and(|observer| observer.is_cancelled()) {
            true => Err(MkfsError::Cancelled),
            false => Ok(()),
        }
    }

    /// Has items go by, and asks now and then.
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

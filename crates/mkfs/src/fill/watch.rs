//! Progress events and cancellation of a fill.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_device::progress::{Progress, Watch};
use ubtrfs_format::key::Key;

use crate::error::MkfsError;
use crate::files::Push;

/// Number of tree items between checks for cancellation.
const ITEMS_BETWEEN: u32 = 1 << 12;

/// The watch of a fill, which reports each file once.
#[derive(Debug)]
pub(super) struct FillWatch<'o> {
    watch: Watch<'o>,
    /// Whether all files were already reported.
    has_met_files: bool,
}

impl<'o> FillWatch<'o> {
    pub(super) fn new(progress: &'o mut dyn Progress) -> FillWatch<'o> {
        FillWatch {
            watch: Watch::new(progress),
            has_met_files: false,
        }
    }

    /// Lends the watch for a part of the work.
    pub(super) fn lend(&mut self) -> FillWatch<'_> {
        FillWatch {
            watch: Watch::new(&mut self.watch),
            has_met_files: self.has_met_files,
        }
    }

    /// Marks all files as reported. If they are processed again, the observer can only cancel the work.
    pub(super) fn end_files(&mut self) {
        self.has_met_files = true;
    }

    /// Reports the next file, relative to the root of the source. The path of the root is empty.
    pub(super) fn begin(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), MkfsError> {
        if self.has_met_files {
            self.poll()
        } else {
            Ok(self.watch.begin(path().as_os_str().as_bytes())?)
        }
    }

    /// Reports data that was read from the source.
    pub(super) fn advance(&mut self, bytes: u64) -> Result<(), MkfsError> {
        let bytes = if self.has_met_files { 0 } else { bytes };
        Ok(self.watch.advance(bytes)?)
    }

    /// Fails if the observer cancels the work.
    pub(super) fn poll(&mut self) -> Result<(), MkfsError> {
        Ok(self.watch.advance(0)?)
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
                self.poll()?;
            }
            push(key, data)
        })
    }
}

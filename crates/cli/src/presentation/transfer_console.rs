//! Console messages and progress of copying, unpacking, archiving and removing trees, and of filling volumes.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use indicatif::ProgressBar;
use ubtrfs::{FileType, FillObserver, RemovalObserver, TransferObserver, TransferProblem};

use crate::presentation::console::Console;
use crate::presentation::interrupt;
use crate::presentation::quoting::{Escaped, ShellQuoted};

/// A console that displays the progress of a transfer.
#[derive(Debug)]
pub(crate) struct TransferConsole<'a> {
    pub(crate) console: &'a mut Console,
    /// Name each file.
    pub(crate) verbose: bool,
}

impl<'a> TransferConsole<'a> {
    pub(crate) fn copying(self) -> FilesConsole<'a> {
        let verb = "copy";
        FilesConsole {
            transfer: self,
            verb,
        }
    }

    pub(crate) fn unpacking(self) -> FilesConsole<'a> {
        let verb = "unpack";
        FilesConsole {
            transfer: self,
            verb,
        }
    }

    fn show_path(&self, path: &[u8]) {
        if let Some(bar) = self.console.progress() {
            bar.set_message(Escaped(path).to_string());
        }
    }

    fn show_bytes(&self, len_bytes: u64) {
        if let Some(bar) = self.console.progress() {
            bar.inc(len_bytes);
        }
    }

    fn begin(&mut self, path: &[u8]) {
        self.show_path(path);
        if self.verbose {
            let _ = writeln!(self.console.out, "{}", ShellQuoted(path));
        }
    }
}

/// Displays copying or unpacking.
#[derive(Debug)]
pub(crate) struct FilesConsole<'a> {
    transfer: TransferConsole<'a>,
    verb: &'static str,
}

impl TransferObserver for FilesConsole<'_> {
    fn begin(&mut self, path: &Path) {
        self.transfer.begin(path.as_os_str().as_bytes());
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.transfer.show_bytes(len_bytes);
    }

    fn failed(&mut self, path: &Path, problem: TransferProblem) {
        let (path, verb) = (Escaped::of(path), self.verb);
        let console = &mut self.transfer.console;
        if problem.is_partial() {
            console.error(format_args!("'{path}': {problem}"))
        } else {
            console.error(format_args!("cannot {verb} '{path}': {problem}"))
        }
    }

    fn is_cancelled(&mut self) -> bool {
        interrupt::take()
    }
}

/// Displays archiving, without naming files.
#[derive(Debug)]
pub(crate) struct ArchiveConsole<'a>(pub(crate) TransferConsole<'a>);

impl TransferObserver for ArchiveConsole<'_> {
    fn begin(&mut self, path: &Path) {
        self.0.show_path(path.as_os_str().as_bytes());
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.0.show_bytes(len_bytes);
    }

    fn failed(&mut self, path: &Path, problem: TransferProblem) {
        let message = format!("'{}': {problem}", Escaped::of(path));
        if problem.is_of_kind() {
            self.0.console.warning(message)
        } else {
            self.0.console.error(message)
        }
    }

    fn is_cancelled(&mut self) -> bool {
        interrupt::take()
    }
}

impl RemovalObserver for TransferConsole<'_> {
    fn removed(&mut self, path: &Path, file_type: FileType) {
        let path = path.as_os_str().as_bytes();
        if let Some(bar) = self.console.progress() {
            bar.inc(1);
            bar.set_message(Escaped(path).to_string());
        }
        if self.verbose {
            let done = if file_type.is_dir() {
                "removed directory"
            } else {
                "removed"
            };
            let _ = writeln!(self.console.out, "{done} {}", ShellQuoted(path));
        }
    }

    fn failed(&mut self, path: &Path, error: ubtrfs::Error) -> ubtrfs::Result<()> {
        let path = Escaped::of(path);
        let reason = error.reason();
        self.console
            .error(format_args!("cannot remove '{path}': {reason}"));
        Ok(())
    }

    fn is_cancelled(&mut self) -> bool {
        interrupt::take()
    }
}

/// Displays the filling of a new volume.
#[derive(Debug)]
pub(crate) struct FillConsole(Option<ProgressBar>);

impl FillConsole {
    /// Creates an observer, which displays progress if the console does.
    pub(crate) fn new(console: &Console) -> FillConsole {
        FillConsole(console.progress().cloned())
    }
}

impl FillObserver for FillConsole {
    fn begin(&mut self, path: &Path) {
        if let Some(bar) = &self.0 {
            bar.set_message(Escaped::of(path).to_string());
        }
    }

    fn transferred(&mut self, len_bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(len_bytes);
        }
    }

    fn is_cancelled(&mut self) -> bool {
        interrupt::take()
    }
}

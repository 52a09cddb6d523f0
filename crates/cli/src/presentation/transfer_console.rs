//! Console messages and progress of copying, unpacking, archiving and removing trees, and of filling volumes.

use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use indicatif::ProgressBar;
use ubtrfs::{Effect, Event, FileKind, Problem, Progress};

use crate::presentation::console::Console;
use crate::presentation::interrupt;
use crate::presentation::quoting::{Escaped, ShellQuoted};

/// The work on a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeWork {
    Copy,
    Unpack,
    Archive,
    Remove,
}

/// A console that displays the progress of work on a tree.
#[derive(Debug)]
pub(crate) struct TransferConsole<'a> {
    pub(crate) console: &'a mut Console,
    /// Name each file.
    pub(crate) verbose: bool,
    pub(crate) work: TreeWork,
}

impl TransferConsole<'_> {
    fn show_path(&self, path: &Path) {
        if let Some(bar) = self.console.progress() {
            bar.set_message(Escaped::of(path).to_string());
        }
    }

    fn show_advance(&self, delta: u64) {
        if let Some(bar) = self.console.progress() {
            bar.inc(delta);
        }
    }

    fn begin(&mut self, path: &Path) {
        self.show_path(path);
        if self.verbose {
            let path = ShellQuoted(path.as_os_str().as_bytes());
            let _ = writeln!(self.console.out, "{path}");
        }
    }

    fn removed(&mut self, path: &Path, kind: FileKind) {
        self.show_advance(1);
        self.show_path(path);
        if self.verbose {
            let path = ShellQuoted(path.as_os_str().as_bytes());
            let done = match kind {
                FileKind::Directory => "removed directory",
                _ => "removed",
            };
            let _ = writeln!(self.console.out, "{done} {path}");
        }
    }

    fn problem(&mut self, problem: &Problem) {
        let (path, message) = (Escaped::of(&problem.path), &problem.message);
        let verb = match self.work {
            TreeWork::Copy => "copy",
            TreeWork::Unpack => "unpack",
            TreeWork::Remove => "remove",
            TreeWork::Archive => {
                let message = format!("'{path}': {message}");
                return match problem.effect {
                    Effect::Unsupported => self.console.warning(message),
                    _ => self.console.error(message),
                };
            }
        };
        match problem.effect {
            Effect::Incomplete => self.console.error(format_args!("'{path}': {message}")),
            _ => {
                let text = format_args!("cannot {verb} '{path}': {message}");
                self.console.error(text)
            }
        }
    }
}

impl Progress for TransferConsole<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { path } => self.begin(path),
            Event::Advance { bytes } => self.show_advance(*bytes),
            Event::Removed { path, kind } => self.removed(path, *kind),
            Event::Problem(problem) => self.problem(problem),
            _ => {}
        }
        unless_interrupted()
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

impl Progress for FillConsole {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match (event, &self.0) {
            (Event::Begin { path }, Some(bar)) => bar.set_message(Escaped::of(path).to_string()),
            (Event::Advance { bytes }, Some(bar)) => bar.inc(*bytes),
            _ => {}
        }
        unless_interrupted()
    }
}

/// Continues unless a signal arrived.
fn unless_interrupted() -> ControlFlow<()> {
    if interrupt::take() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

//! Progress of long operations: their events, and cancellation.
//!
//! Every long operation of the layers above reports to one [`Progress`]. A new operation or event adds a variant of
//! [`Event`] here; observers that do not know it ignore it.
//!
//! Invariants
//! - PROGRESS-1: after `Break` an operation reports no further event, and returns its error for a cancellation. It
//!   may complete the current step first. [`Watch`] ensures the first half.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use ubtrfs_format::item::FileKind;

use crate::errno::kind_of;
use crate::scrub_progress::DeviceScrub;

#[cfg(test)]
mod tests;

/// An observer of a long operation. A closure that takes an [`Event`] is one as well, and `()` ignores all events.
pub trait Progress {
    /// Receives each event, on the thread of the operation. `Break` cancels the operation, which then returns an error
    /// of kind `Interrupted`; the work done so far is kept. Called often, so it should be fast.
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()>;
}

/// The observer that ignores all events.
impl Progress for () {
    fn event(&mut self, _: &Event<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(&Event<'_>) -> ControlFlow<()>> Progress for F {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self(event)
    }
}

/// An event of a long operation. Each operation reports some of the variants.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The next file to copy, archive, unpack or add to a new volume.
    Begin {
        /// The path in the form that the operation uses. For a new volume it is relative to the source.
        path: &'a Path,
    },
    /// The next command of a stream that is being received.
    Command(StreamCommand<'a>),
    /// The phase of a check and its totals: at the start of each phase, and periodically after that.
    Phase(PhaseProgress),
    /// A completed part of the work. Also reported regularly during work that transfers no data, with 0 bytes.
    Advance {
        /// The number of bytes since the last event of this kind.
        bytes: u64,
    },
    /// A file or command that failed, while the operation continues.
    Problem(&'a Problem),
    /// A file that was removed.
    Removed {
        /// The path in the form that the operation uses.
        path: &'a Path,
        /// The kind of the file.
        kind: FileKind,
    },
    /// The devices of a scrub, several times a second and at the end.
    Scrub(&'a [DeviceScrub]),
    /// A received subvolume after its last command.
    Finished {
        /// The name of the subvolume.
        path: &'a Path,
        /// Whether it is complete and read-only. With failed commands it stays as it is, and writable.
        is_complete: bool,
    },
}

/// The phase of an operation, with the totals since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseProgress {
    /// The number of the phase, from 1.
    pub phase: usize,
    /// The number of phases.
    pub phases: usize,
    /// The subject of the phase, for display.
    pub subject: &'static str,
    /// The number of tree blocks read so far, in all phases.
    pub blocks: u64,
    /// The number of issues found so far.
    pub issues: u64,
}

/// A file or command that failed during an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The path of the file in the form that the operation uses. For a command of a stream, it begins with the
    /// subvolume.
    pub path: PathBuf,
    /// The reason, for display.
    pub message: String,
    /// The errno that Linux has for the same failure.
    pub errno: i32,
    /// The kind of the failure.
    pub kind: io::ErrorKind,
    /// The consequence for the file.
    pub effect: Effect,
    /// The offset of the command in the stream, in bytes; `None` for other operations.
    pub stream_offset: Option<u64>,
}

/// The consequence of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The file was not transferred or removed, or the command not executed.
    Failed,
    /// The file was transferred incompletely: without an attribute, or with zeros for a range that cannot be read.
    Incomplete,
    /// The destination does not support this kind of file, as an archive does not support sockets.
    Unsupported,
}

impl Problem {
    /// Creates a problem of a file that failed, with the kind of its errno.
    pub fn new(path: &[u8], message: impl fmt::Display, errno: Errno) -> Problem {
        Problem {
            path: path_of(path).to_owned(),
            message: message.to_string(),
            errno: errno.raw_os_error(),
            kind: kind_of(errno),
            effect: Effect::Failed,
            stream_offset: None,
        }
    }

    /// Sets a kind other than the one of the errno.
    #[must_use]
    pub fn with_kind(mut self, kind: io::ErrorKind) -> Problem {
        self.kind = kind;
        self
    }

    /// Sets the consequence for the file.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Problem {
        self.effect = effect;
        self
    }

    /// Sets the offset of the command in a stream.
    #[must_use]
    pub fn at_offset(mut self, stream_offset: u64) -> Problem {
        self.stream_offset = Some(stream_offset);
        self
    }
}

/// A function that formats seconds since 1970.
pub type LocalTime<'a> = &'a dyn Fn(i64) -> String;

/// A command of a stream that is being received.
#[derive(Clone, Copy)]
pub struct StreamCommand<'a> {
    name: &'static str,
    subvolume: &'a Path,
    path: Option<&'a Path>,
    text: &'a dyn Fn(LocalTime<'_>) -> String,
}

impl<'a> StreamCommand<'a> {
    /// Creates the description of a command of `subvolume`. `text` formats it when that is needed.
    pub fn new(
        name: &'static str,
        subvolume: &'a [u8],
        path: Option<&'a [u8]>,
        text: &'a dyn Fn(LocalTime<'_>) -> String,
    ) -> StreamCommand<'a> {
        StreamCommand {
            name,
            subvolume: path_of(subvolume),
            path: path.map(path_of),
            text,
        }
    }

    /// Returns the name of the command, as in `btrfs receive --dump`. "subvol" and "snapshot" begin a subvolume,
    /// "write", "`encoded_write`" and "clone" fill a file.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the subvolume of the command.
    pub fn subvolume(&self) -> &'a Path {
        self.subvolume
    }

    /// Returns the path of the file of the command, from the root of the subvolume. For a command that begins a
    /// subvolume, it is the subvolume's name.
    pub fn path(&self) -> Option<&'a Path> {
        self.path
    }

    /// Returns the path of the file of the command, beginning with the name of the subvolume.
    pub fn full_path(&self) -> PathBuf {
        match self.path {
            Some(path) if !matches!(self.name, "subvol" | "snapshot") => self.subvolume.join(path),
            _ => self.subvolume.to_owned(),
        }
    }

    /// Formats the command as a line of `btrfs receive --dump`. `local_time` formats seconds since 1970.
    pub fn text<T: fmt::Display>(&self, local_time: impl Fn(i64) -> T) -> String {
        (self.text)(&|seconds| local_time(seconds).to_string())
    }
}

impl fmt::Debug for StreamCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCommand")
            .field("name", &self.name)
            .field("subvolume", &self.subvolume)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The error of an operation that was cancelled by its [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// The reporting side of an operation: it passes events to a [`Progress`] until one is answered with `Break`.
///
/// Each method fails once the operation is cancelled. A caller that cannot stop ignores the error: the next call
/// returns it again.
pub struct Watch<'p> {
    progress: &'p mut dyn Progress,
    is_cancelled: bool,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("is_cancelled", &self.is_cancelled)
            .finish_non_exhaustive()
    }
}

impl<'p> Watch<'p> {
    /// Creates the reporting side of an operation.
    pub fn new(progress: &'p mut dyn Progress) -> Watch<'p> {
        Watch {
            progress,
            is_cancelled: false,
        }
    }

    /// Reports an event.
    ///
    /// # Errors
    ///
    /// The operation is cancelled.
    pub fn report(&mut self, event: &Event<'_>) -> Result<(), Cancelled> {
        // PROGRESS-1
        if !self.is_cancelled {
            self.is_cancelled = self.progress.event(event).is_break();
        }
        if self.is_cancelled {
            Err(Cancelled)
        } else {
            Ok(())
        }
    }

    /// Reports the next file.
    ///
    /// # Errors
    ///
    /// As [`Watch::report`].
    pub fn begin(&mut self, path: &[u8]) -> Result<(), Cancelled> {
        let path = path_of(path);
        self.report(&Event::Begin { path })
    }

    /// Reports a completed part of the work.
    ///
    /// # Errors
    ///
    /// As [`Watch::report`].
    pub fn advance(&mut self, bytes: u64) -> Result<(), Cancelled> {
        self.report(&Event::Advance { bytes })
    }

    /// Reports a problem of a file.
    ///
    /// # Errors
    ///
    /// As [`Watch::report`].
    pub fn problem(&mut self, problem: &Problem) -> Result<(), Cancelled> {
        self.report(&Event::Problem(problem))
    }

    /// Reports a removed file.
    ///
    /// # Errors
    ///
    /// As [`Watch::report`].
    pub fn removed(&mut self, path: &[u8], kind: FileKind) -> Result<(), Cancelled> {
        let path = path_of(path);
        self.report(&Event::Removed { path, kind })
    }

    /// Reports a received subvolume.
    ///
    /// # Errors
    ///
    /// As [`Watch::report`].
    pub fn finished(&mut self, subvolume: &[u8], is_complete: bool) -> Result<(), Cancelled> {
        let path = path_of(subvolume);
        self.report(&Event::Finished { path, is_complete })
    }

    /// Returns whether the operation is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }
}

/// A part of an operation reports through the operation's own watch.
impl Progress for Watch<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match self.report(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Cancelled) => ControlFlow::Break(()),
        }
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

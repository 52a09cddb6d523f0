//! Receiving: the commands of a stream are checked and applied to a [`Target`].
//!
//! A stream is untrusted input. Nothing outside of the created subvolumes is changed: paths only lead downwards, and
//! symlinks are not followed. Sizes are checked before any change. If all commands of a subvolume succeeded it is
//! finished: it becomes read-only and records its origin.
//!
//! Memory: one command, one decompressed extent, and the target's caches.
//! Not here: the effects of commands on a volume (`volume`), parsing them (`format`).

mod apply;
mod deferred;
mod encoded;
mod error;
mod parent;
mod path;
mod path_cache;
mod target;
mod volume;

use std::io::Read;

pub use encoded::EncodedFault;
pub use error::{CommandError, CommandFault, ReceiveError, ReceiveFault};
pub use parent::find_sent;
pub use path::{PathFault, TreePath};
pub use path_cache::PathCache;
pub use target::{CloneSource, EncodedExtent, NewFile, Sent, SetAttributes, Target, TargetError};
pub use volume::{VolumeTarget, Watcher};

use ubtrfs_device::progress::{Event, LocalTime, Problem, Progress, StreamCommand, Watch};
use ubtrfs_format::item::FileKind;

use crate::dump::CommandLines;
use crate::format::{Command, CommandKind, StreamReader};
use crate::left_out::LeftOut;
use deferred::Deferred;
use encoded::Decoder;

/// The file type bits of a mode.
const TYPE: u64 = FileKind::MODE_BITS as u64;

/// Options for receiving.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions {
    /// Stop after this number of failed commands; 0 for never.
    pub max_errors: u64,
    /// Decompress compressed data even if the target could store it.
    pub force_decompress: bool,
    /// Fail at attributes of NAS makers, which the target cannot have. Otherwise they are left out and counted.
    pub strict_attributes: bool,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        ReceiveOptions {
            max_errors: 1,
            force_decompress: false,
            strict_attributes: false,
        }
    }
}

/// The subvolume being received.
#[derive(Debug)]
struct Current {
    name: Vec<u8>,
    sent: Sent,
    /// Whether none of its commands failed.
    is_sound: bool,
    /// Whether it was created.
    is_begun: bool,
}

/// Executes the commands of streams.
pub struct Receiver<'a> {
    target: &'a mut dyn Target,
    watch: Watch<'a>,
    options: ReceiveOptions,
    current: Option<Current>,
    decoder: Decoder,
    deferred: Deferred,
    left_out: LeftOut,
}

/// The failed command.
struct Failed {
    command: CommandKind,
    offset: u64,
    path: Option<Vec<u8>>,
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("options", &self.options)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl<'a> Receiver<'a> {
    pub fn new(
        target: &'a mut dyn Target,
        progress: &'a mut dyn Progress,
        options: ReceiveOptions,
    ) -> Receiver<'a> {
        Receiver {
            target,
            watch: Watch::new(progress),
            options,
            current: None,
            decoder: Decoder::default(),
            deferred: Deferred::default(),
            left_out: LeftOut::default(),
        }
    }

    /// Receives all subvolumes of a stream, up to its command `end`.
    ///
    /// Errors: the stream is invalid; the limit of failed commands was reached; or fewer commands failed and all
    /// others were executed. Subvolumes before the named one are finished, unless the observer was notified
    /// otherwise.
    pub fn receive<R: Read>(&mut self, stream: &mut StreamReader<R>) -> Result<(), ReceiveError> {
        let received = self.receive_commands(stream);
        std::mem::take(&mut self.left_out).warn();
        let unfinished = self.current.take().filter(|current| current.is_begun);
        received.map_err(|cause| ReceiveError {
            cause,
            unfinished: unfinished.map(|current| current.name),
        })
    }

    fn receive_commands<R: Read>(
        &mut self,
        stream: &mut StreamReader<R>,
    ) -> Result<(), ReceiveFault> {
        // An observer that cancels at once prevents the first command.
        self.watch.advance(0)?;
        let mut failed = 0;
        let mut offset = stream.offset();
        let ended: Result<(), ReceiveFault> = loop {
            let command = match stream.next_command() {
                Ok(Some(command)) => command,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            if !self.defer(&command, offset) {
                self.run_deferred(&mut failed)?;
                self.do_one(&command, offset, &mut failed)?;
            }
            let end = stream.offset();
            if let Err(cancelled) = self.watch.advance(end - offset) {
                break Err(cancelled.into());
            }
            offset = end;
        };
        self.run_deferred(&mut failed)?;
        ended?;
        match failed {
            0 => Ok(()),
            failed => Err(ReceiveFault::Commands(failed)),
        }
    }

    fn do_one(
        &mut self,
        command: &Command<'_>,
        offset: u64,
        failed: &mut u64,
    ) -> Result<(), ReceiveFault> {
        let of = || Failed {
            command: command.kind().expect("unknown commands do nothing"),
            offset,
            path: command.path().map(<[u8]>::to_vec),
        };
        let begins = matches!(command, Command::Subvol { .. } | Command::Snapshot { .. });
        // Finish the previous subvolume first: its failure may stop the stream before the next one is created.
        if begins && let Err(fault) = self.finish() {
            self.fail(of(), fault, failed)?;
        }
        if self.defer(command, offset) {
            return Ok(());
        }
        match self.apply(command) {
            Ok(()) => Ok(()),
            Err(fault) => self.fail(of(), fault, failed),
        }
    }

    /// Counts a failed command.
    ///
    /// Errors: receiving must stop.
    fn fail(
        &mut self,
        of: Failed,
        fault: CommandFault,
        failed: &mut u64,
    ) -> Result<(), ReceiveFault> {
        *failed += 1;
        let is_final = matches!(&fault, CommandFault::Target(error) if error.is_final());
        let error = CommandError {
            command: of.command,
            offset: of.offset,
            path: of.path,
            fault,
        };
        if let Some(current) = &mut self.current {
            current.is_sound = false;
        }
        if is_final || *failed == self.options.max_errors {
            return Err(Box::new(error).into());
        }
        let begins = matches!(error.command, CommandKind::Subvol | CommandKind::Snapshot);
        let path = match (&self.current, &error.path) {
            (Some(current), Some(path)) if !begins => [&*current.name, b"/", path].concat(),
            (_, Some(path)) => path.clone(),
            (Some(current), None) => current.name.clone(),
            (None, None) => Vec::new(),
        };
        let problem = Problem::new(&path, &error, error.errno()).at_offset(error.offset);
        Ok(self.watch.problem(&problem)?)
    }
}

/// Reports a command before its execution. If the observer cancels here, the command is still executed.
fn report(watch: &mut Watch<'_>, subvolume: &[u8], command: &Command<'_>) {
    let text = |local_time: LocalTime<'_>| {
        let mut lines = CommandLines::within(subvolume, local_time);
        lines.line_of(command).unwrap_or_default()
    };
    let name = command.kind().map_or("unknown", |kind| kind.name());
    let command = StreamCommand::new(name, subvolume, command.path(), &text);
    let _ = watch.report(&Event::Command(command));
}

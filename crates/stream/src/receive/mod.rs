//! Receiving: the commands of a stream are judged, and done to a [`Target`].
//!
//! A stream is hostile input. Nothing is changed outside the subvolumes that it makes: paths lead down only, and links are
//! not followed. Sizes are judged before anything is done. If all commands of a subvolume were done it
//! is finished: it is read-only then, and says what it was received from.
//!
//! Memory: a command, an extent that is decompressed, and what the target keeps.
//! Not here: what commands do to a volume (`volume`), reading them (`format`).

mod apply;
mod encoded;
mod error;
mod parent;
mod path;
mod path_cache;
mod put_off;
mod target;
mod volume;

use std::io::Read;

pub use encoded::EncodedFault;
pub use error::{CommandError, CommandFault, ReceiveError, ReceiveFault};
pub use parent::find_sent;
pub use path::{PathFault, TreePath};
pub use path_cache::PathCache;
pub use target::{
    CloneSource, Device, EncodedExtent, NewFile, Sent, SetAttributes, Target, TargetError,
};
pub use volume::{VolumeTarget, Watcher};

use ubtrfs_format::item::FileKind;

use crate::format::{Command, CommandKind, StreamReader};
use encoded::Decoder;
use put_off::PutOff;

/// The bits of a mode that name a kind of file.
const TYPE: u64 = FileKind::MODE_BITS as u64;

/// How a stream is received.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions {
    /// After so many commands that failed no more is done; 0: never.
    pub max_errors: u64,
    /// Compressed data is decompressed, whatever the target can take.
    pub force_decompress: bool,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        ReceiveOptions {
            max_errors: 1,
            force_decompress: false,
        }
    }
}

/// Hears how receiving goes on.
pub trait ReceiveObserver {
    /// Hears that a command is about to be done. `subvolume`: the one that it is about.
    fn begin(&mut self, _subvolume: &[u8], _command: &Command<'_>) {}
    /// Hears that a command was done that takes so many bytes of the stream.
    fn advanced(&mut self, _bytes: u64) {}
    /// Tells whether no further command is to be done.
    fn is_cancelled(&mut self) -> bool {
        false
    }
    /// Hears that a command failed, and that the next one is done.
    fn failed(&mut self, _error: CommandError) {}
    /// Hears that all of this subvolume was done, and that it is read-only.
    fn finished(&mut self, _subvolume: &[u8]) {}
    /// Hears that commands of this subvolume failed. It is left as it is, and writable.
    fn unfinished(&mut self, _subvolume: &[u8]) {}
}

/// The observer that does nothing.
impl ReceiveObserver for () {}

/// The subvolume that is being made.
#[derive(Debug)]
struct Current {
    name: Vec<u8>,
    sent: Sent,
    /// None of its commands failed.
    is_sound: bool,
    /// It is there.
    is_begun: bool,
}

/// Does the commands of streams, one after the other.
pub struct Receiver<'a> {
    target: &'a mut dyn Target,
    observer: &'a mut dyn ReceiveObserver,
    options: ReceiveOptions,
    current: Option<Current>,
    decoder: Decoder,
    put_off: PutOff,
}

/// Which command failed.
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
        observer: &'a mut dyn ReceiveObserver,
        options: ReceiveOptions,
    ) -> Receiver<'a> {
        Receiver {
            target,
            observer,
            options,
            current: None,
            decoder: Decoder::default(),
            put_off: PutOff::default(),
        }
    }

    /// Receives all subvolumes of a stream, up to its command `end`.
    ///
    /// Errors: the stream is unsound; as many commands failed as may at most; fewer failed, and the rest was done. The
    /// subvolumes before the one that is named are finished, unless the observer heard otherwise.
    pub fn receive<R: Read>(&mut self, stream: &mut StreamReader<R>) -> Result<(), ReceiveError> {
        let received = self.receive_commands(stream);
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
        let mut failed = 0;
        let mut offset = stream.offset();
        let ended = loop {
            if self.observer.is_cancelled() {
                break Err(ReceiveFault::Cancelled);
            }
            let command = match stream.next_command() {
                Ok(Some(command)) => command,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            if !self.put_off(&command, offset) {
                self.do_put_off(&mut failed)?;
                self.do_one(&command, offset, &mut failed)?;
            }
            let end = stream.offset();
            self.observer.advanced(end - offset);
            offset = end;
        };
        self.do_put_off(&mut failed)?;
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
        // One that cannot be finished may end it all, before the next is there.
        if begins && let Err(fault) = self.finish() {
            self.fail(of(), fault, failed)?;
        }
        if self.put_off(command, offset) {
            return Ok(());
        }
        match self.apply(command) {
            Ok(()) => Ok(()),
            Err(fault) => self.fail(of(), fault, failed),
        }
    }

    /// Counts a command that failed.
    ///
    /// Errors: no more is to be done.
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
        self.observer.failed(error);
        Ok(())
    }
}

//! Errors of receiving a stream.

use std::fmt;

use rustix::io::Errno;
use ubtrfs_device::progress::Cancelled;

use super::encoded::EncodedFault;
use super::path::PathFault;
use super::target::TargetError;
use crate::format::{CommandKind, StreamError};

/// A stream that was not received completely.
#[derive(Debug)]
pub struct ReceiveError {
    pub cause: ReceiveFault,
    /// The subvolume that was created but not finished. It stays writable.
    pub unfinished: Option<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReceiveFault {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Command(#[from] Box<CommandError>),
    /// The errors were reported one by one.
    #[error("{0} commands failed")]
    Commands(u64),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ReceiveError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match &self.cause {
            ReceiveFault::Stream(error) => error.errno(),
            ReceiveFault::Command(error) => error.errno(),
            ReceiveFault::Commands(_) => Errno::IO,
            ReceiveFault::Cancelled(_) => Errno::INTR,
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(name) = &self.unfinished {
            let name = name.escape_ascii();
            write!(f, "; subvolume '{name}' is not finished, and writable")?;
        }
        Ok(())
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The source's text is part of this error's text.
        self.cause.source()
    }
}

/// A failed command.
#[derive(Debug)]
pub struct CommandError {
    pub command: CommandKind,
    /// Offset of the command in the stream.
    pub offset: u64,
    /// The command's file, if it has one.
    pub path: Option<Vec<u8>>,
    pub fault: CommandFault,
}

impl CommandError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match &self.fault {
            CommandFault::Target(error) => error.errno(),
            CommandFault::Path(_)
            | CommandFault::Encoded(_)
            | CommandFault::NoSubvolume
            | CommandFault::NotBegun
            | CommandFault::FileRange { .. }
            | CommandFault::Mode { .. }
            | CommandFault::Owner { .. }
            | CommandFault::Device(_)
            | CommandFault::Time(_)
            | CommandFault::LinkTarget(_) => Errno::UCLEAN,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, offset) = (self.command.name(), self.offset);
        write!(f, "{command}")?;
        if let Some(path) = &self.path {
            write!(f, " '{}'", path.escape_ascii())?;
        }
        write!(f, " failed: {}", self.fault)?;
        write!(f, " (command {command} at byte {offset} of the stream)")
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The source's text is part of this error's text.
        self.fault.source()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CommandFault {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Path(#[from] PathFault),
    #[error(transparent)]
    Encoded(#[from] EncodedFault),
    #[error("no subvolume was begun before")]
    NoSubvolume,
    #[error("the subvolume could not be begun")]
    NotBegun,
    #[error("bytes from {offset} on, {len} of them, are beyond the largest file")]
    FileRange { offset: u64, len: u64 },
    #[error("invalid {what} {value:#o}")]
    Mode { what: &'static str, value: u64 },
    #[error("invalid owner {uid}:{gid}")]
    Owner { uid: u64, gid: u64 },
    #[error("invalid device number {0:#x}")]
    Device(u64),
    #[error("invalid time: {0} nanoseconds")]
    Time(u32),
    #[error("the target of a link has {0} bytes")]
    LinkTarget(usize),
}

//! Errors of reading and writing streams.

use std::fmt;
use std::io;

use rustix::io::Errno;
use ubtrfs_device::errno_of;

use super::{Attribute, CommandKind};

/// A defect of a stream, with its location.
#[derive(Debug)]
pub struct StreamError {
    /// Offset of the command, or 0 for the stream's header.
    pub offset: u64,
    /// The number of the command, if it was read.
    pub command: Option<u16>,
    pub fault: Fault,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.fault)?;
        if let Some(number) = self.command {
            match CommandKind::from_raw(number) {
                Some(kind) => write!(f, "command {} ", kind.name())?,
                None => write!(f, "command {number} ")?,
            }
        }
        write!(f, "at byte {} of the stream)", self.offset)
    }
}

impl StreamError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match &self.fault {
            Fault::Read(error) => errno_of(error),
            Fault::Version(_) | Fault::NewerCommand(_) | Fault::NewerAttribute(_) => {
                Errno::OPNOTSUPP
            }
            Fault::Empty
            | Fault::ShortRead { .. }
            | Fault::UnexpectedEnd
            | Fault::Magic
            | Fault::TooLarge { .. }
            | Fault::Crc { .. }
            | Fault::UnknownAttribute(_)
            | Fault::CutAttribute
            | Fault::MissingAttribute(_)
            | Fault::AttributeSize { .. } => Errno::UCLEAN,
        }
    }

    /// Returns whether the stream ends early.
    pub fn is_truncated(&self) -> bool {
        match &self.fault {
            Fault::Empty | Fault::ShortRead { .. } | Fault::UnexpectedEnd => true,
            Fault::Read(error) => error.kind() == io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }
}

impl std::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            // The source's text is part of the fault's text.
            Fault::Read(error) => error.source(),
            _ => None,
        }
    }
}

/// Messages are the same as in btrfs-progs, if it has an equivalent.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot read: {0}")]
    Read(io::Error),
    #[error("empty stream is not considered valid")]
    Empty,
    #[error("short read from stream: expected {expected} read {read}")]
    ShortRead { expected: usize, read: usize },
    /// The stream ends after a command other than `end`.
    #[error("unexpected EOF in stream")]
    UnexpectedEnd,
    #[error("unexpected header")]
    Magic,
    #[error("stream version {0} not supported")]
    Version(u32),
    #[error("body of {len_bytes} bytes is too large (max {max_bytes})")]
    TooLarge { len_bytes: u32, max_bytes: usize },
    #[error("crc32 mismatch in command: stored {stored:#010x}, found {found:#010x}")]
    Crc { stored: u32, found: u32 },
    /// A command of version 3.
    #[error("{} needs stream version 3, which is not supported", .0.name())]
    NewerCommand(CommandKind),
    /// An attribute of version 3.
    #[error("attribute {} needs stream version 3, which is not supported", .0.name())]
    NewerAttribute(Attribute),
    #[error("unknown attribute {0}")]
    UnknownAttribute(u16),
    #[error("an attribute is cut off by the end of its command")]
    CutAttribute,
    #[error("attribute {} requested but not present", .0.name())]
    MissingAttribute(Attribute),
    #[error(
        "invalid size for attribute {}, expected = {expected}, got = {found}",
        attribute.name()
    )]
    AttributeSize {
        attribute: Attribute,
        expected: usize,
        found: usize,
    },
}

/// The reason why a command was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write to the stream: {0}")]
    Write(#[from] io::Error),
    #[error("attribute {} of {len_bytes} bytes is too long for {}", attribute.name(), command.name())]
    TooLong {
        command: CommandKind,
        attribute: Attribute,
        len_bytes: usize,
    },
    #[error("{} of {len_bytes} bytes is too large (max {max_bytes})", command.name())]
    TooLarge {
        command: CommandKind,
        len_bytes: usize,
        max_bytes: usize,
    },
    #[error("{} needs stream version 2", .0.name())]
    NeedsVersion2(CommandKind),
    #[error("attribute {} of {} has a NUL byte", attribute.name(), command.name())]
    Nul {
        command: CommandKind,
        attribute: Attribute,
    },
    #[error("command {0} is unknown")]
    Unknown(u16),
}

impl WriteError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            WriteError::Write(error) => errno_of(error),
            WriteError::TooLong { .. }
            | WriteError::TooLarge { .. }
            | WriteError::NeedsVersion2(_)
            | WriteError::Nul { .. }
            | WriteError::Unknown(_) => Errno::UCLEAN,
        }
    }
}

//! The bytes of a stream.
//!
//! A stream is a header followed by commands. A command is a header (length of the body, number, checksum) and a body
//! of attributes. An attribute is a number, a length, and its bytes. All integers are little endian and unaligned.
//! Since version 2, the attribute with a file's data has no length: it is the last one and extends to the end.
//!
//! Sources: <https://btrfs.readthedocs.io/en/latest/dev/dev-send-stream.html>, and streams of Linux 6.18.
//!
//! Invariants
//! - STREAM-1: the checksum covers header and body of a command, with zeros in the checksum field.
//! - STREAM-2: the length of a body is checked before memory is allocated for it.
//! - STREAM-3: no attribute extends beyond its command.

mod attribute;
mod body;
mod command;
mod command_kind;
mod error;
mod field;
mod numbered;
mod reader;
mod synology;
#[cfg(test)]
mod tests;
mod writer;

use ubtrfs_format::name_hash::crc32c;

pub use attribute::Attribute;
pub use command::Command;
pub(crate) use command::DumpContext;
pub use command_kind::CommandKind;
pub use error::{Fault, StreamError, WriteError};
pub use reader::StreamReader;
pub use writer::StreamWriter;

const MAGIC: &[u8; 13] = b"btrfs-stream\0";
/// The magic and the version.
const STREAM_HEADER_BYTES: usize = MAGIC.len() + 4;
/// Length of the body (4 bytes), number (2), checksum (4).
const COMMAND_HEADER_BYTES: usize = 10;
/// Offset of the checksum in a command.
const CRC_AT: usize = 6;

/// Maximum body size for reading and writing. The kernel's bodies are at most 144 KiB.
///
/// The length field is not protected until the body was read, so that a corrupt one must not cause an allocation of 4
/// GiB.
pub const MAX_BODY_BYTES: usize = (16 << 20) + (64 << 10);
/// Maximum command size in version 1, including the header: receivers may have a fixed buffer of this size.
const MAX_V1_COMMAND_BYTES: usize = 64 << 10;

/// A supported version of the format.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum StreamVersion {
    /// Version 1, which all receivers support.
    #[default]
    V1 = 1,
    /// Adds compressed data in on-disk form, fallocate, and larger commands.
    V2 = 2,
}

impl StreamVersion {
    /// Returns the version with this number. As in btrfs-progs, 0 means 1.
    fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 | 1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns the number of the version.
    pub fn raw(self) -> u32 {
        self as u32
    }
}

/// Computes the checksum of a whole command, whose checksum field must be zero.
fn command_crc(command: &[u8]) -> u32 {
    // STREAM-1
    crc32c(0, command)
}

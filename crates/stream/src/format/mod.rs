//! The bytes of a stream.
//!
//! A stream is a header and commands. A command is a header (length of the body, number, checksum) and a body of
//! attributes. An attribute is a number, a length, and that many bytes. All integers are little endian, and nothing is
//! aligned. From version 2 on the attribute with a file's data has no length: it is the last and takes the rest.
//!
//! Source of the facts: <https://btrfs.readthedocs.io/en/latest/dev/dev-send-stream.html>, and streams of Linux 6.18.
//!
//! Invariants
//! - STREAM-1: the checksum covers header and body of a command, with zero for the checksum itself.
//! - STREAM-2: the length of a body is judged before memory is taken for it.
//! - STREAM-3: no attribute reaches beyond its command.

mod attribute;
mod command;
mod error;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use ubtrfs_format::name_hash::crc32c;

pub use attribute::{Attribute, Time};
pub use command::{Command, CommandKind, NewNode};
pub use error::{Fault, StreamError, WriteError};
pub use reader::StreamReader;
pub use writer::StreamWriter;

const MAGIC: &[u8; 13] = b"btrfs-stream\0";
/// The magic and the version.
const STREAM_HEADER_BYTES: usize = MAGIC.len() + 4;
/// Length of the body (4 bytes), number (2), checksum (4).
const COMMAND_HEADER_BYTES: usize = 10;
/// Where the checksum lies in a command.
const CRC_AT: usize = 6;

/// The largest body of a command that is read or written. The kernel's are at most 144 KiB.
///
/// The length of a body is not protected before the body is read, so a wrong one must not ask for 4 GiB.
pub const MAX_BODY_BYTES: usize = (16 << 20) + (64 << 10);
/// The largest command of version 1, header included: its readers may have a buffer of this size.
const MAX_V1_COMMAND_BYTES: usize = 64 << 10;

/// A version of the format that is read and written.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum StreamVersion {
    /// The first, which all receivers read.
    #[default]
    V1 = 1,
    /// With compressed data as it is on disk, fallocate, and larger commands.
    V2 = 2,
}

impl StreamVersion {
    /// Returns the version of a number. As in btrfs-progs, 0 means 1.
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

/// Computes the checksum of a whole command, whose field for it is zero.
fn command_crc(command: &[u8]) -> u32 {
    // STREAM-1
    crc32c(0, command)
}

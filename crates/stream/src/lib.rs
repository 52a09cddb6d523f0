//! Streams of btrfs send and receive.
//!
//! A stream is a list of commands that make a subvolume, or the difference of two snapshots. [`StreamReader`] and
//! [`StreamWriter`] turn its bytes into [`Command`]s and back. [`dump`] shows them as text.
//!
//! Not here: making a stream from a volume, and applying one to a volume.

mod dump;
mod format;

pub use dump::{DumpError, Escaped, dump};
pub use format::{
    Attribute, Command, CommandKind, Fault, MAX_BODY_BYTES, NewNode, StreamError, StreamReader,
    StreamVersion, StreamWriter, Time, WriteError,
};

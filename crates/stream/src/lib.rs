//! Streams of btrfs send and receive.
//!
//! A stream is a list of commands that make a subvolume, or the difference of two snapshots. [`StreamReader`] and
//! [`StreamWriter`] turn its bytes into [`Command`]s and back. [`dump`] shows them as text. A [`Sender`] makes them of a
//! read-only subvolume.
//!
//! [`write_behind`] writes a stream on a thread of its own.
//!
//! [`Receiver`] does the commands of a stream to a [`Target`].
//! [`Diff`] tells what changed between two snapshots, without a stream.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod diff;
mod dump;
mod format;
mod receive;
mod scoped_thread;
mod send;
mod write_behind;

pub use diff::{
    Attributes, ByteRange, ChangeKind, Diff, DiffEntry, DiffError, DiffTime, EntryType,
    XattrChange, XattrChangeKind,
};
pub use dump::{CommandLines, DumpError, Escaped, dump};
pub use format::{
    Attribute, Command, CommandKind, Fault, MAX_BODY_BYTES, NewNode, StreamError, StreamReader,
    StreamVersion, StreamWriter, Time, WriteError,
};
pub use receive::{
    CloneSource, CommandError, CommandFault, Device, EncodedExtent, EncodedFault, NewFile,
    PathCache, PathFault, ReceiveError, ReceiveFault, ReceiveObserver, ReceiveOptions, Receiver,
    Sent, SetAttributes, Target, TargetError, TreePath, VolumeTarget, Watcher, find_sent,
};
pub use send::{CommandSink, CorruptFile, SendError, SendOptions, Sender};
pub use write_behind::{WriteBehind, write_behind};

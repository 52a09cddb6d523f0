//! Streams of btrfs send and receive.
//!
//! A stream is a list of commands that create a subvolume, either completely or from a parent snapshot.
//! [`StreamReader`] and [`StreamWriter`] convert between bytes and [`Command`]s. [`CommandLines`] formats them as
//! text. A [`Sender`] generates them from a read-only subvolume.
//!
//! [`write_behind`] writes a stream on a separate thread.
//!
//! [`Receiver`] applies the commands of a stream to a [`Target`].
//!
//! [`Diff`] lists the changes between two snapshots, without a stream.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod diff;
mod dump;
mod escaped;
mod format;
mod left_out;
mod receive;
mod scoped_thread;
mod scratch;
mod send;
mod write_behind;

pub use diff::{Change, ChangeKind, Diff, DiffError, FileAttributes, XattrChange, XattrChangeKind};
pub use dump::CommandLines;
pub use escaped::Escaped;
pub use format::{
    Attribute, Command, CommandKind, Fault, MAX_BODY_BYTES, StreamError, StreamReader,
    StreamVersion, StreamWriter, WriteError,
};
pub use left_out::LeftOut;
pub use receive::{
    CloneSource, CommandError, CommandFault, EncodedExtent, EncodedFault, NewFile, PathCache,
    PathFault, ReceiveError, ReceiveFault, ReceiveOptions, Receiver, Sent, SetAttributes, Target,
    TargetError, TreePath, VolumeTarget, Watcher, find_sent,
};
pub use send::{CommandSink, CorruptFile, SendError, SendOptions, Sender};
pub use write_behind::{WriteBehind, write_behind};

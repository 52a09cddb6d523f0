//! Commands on a path in a mount: the process that serves the mount runs them on its open volume.
//!
//! The command parses its arguments and finds those that are paths in a mount of ours. It sends the whole command line,
//! these paths as they are from the mount's root, its standard output and its standard error. The server parses the
//! same line, writes to the client's own descriptors, and answers with the exit code. A client that
//! goes away ends its command at the next piece of output. Root does not hand its terminal to the server of a user's
//! mount (`relay`).
//!
//! A server may be older than the command, as it runs until its mount is gone. Then it says its version and does
//! nothing, and it runs nothing for some callers. Then the command uses ioctls if it can (`ioctls`), as on mounts of
//! the kernel's btrfs. Otherwise the command says why. That all is durable, which `mount -o remount` needs, is asked by
//! ioctl whatever went wrong.
//!
//! The socket is an abstract one: it needs no folder and leaves nothing behind. Abstract names are those of a network
//! namespace. So there is another socket in a folder (`socket_file`), if there is a folder for that. Clients try it
//! when the first leads nowhere or to a stranger. Its name and its path are random, and the mount hands them out
//! (`CONTROL_ATTRIBUTE`).
//!
//! The user who mounted may hand out any name, and in another namespace any user may take the name. Therefore:
//! - The client talks only to a process that proves to be the mount's (`Nonce`). It must be of root or of the user who
//!   mounted, as the kernel's table has it.
//! - The server talks only to these two users, and only about its own mount.
//!
//! Users are numbers of each one's user namespace: a user who has none in the server's counts as a stranger. Of a
//! process outside the server's pid namespace, only user and group are known: it acts without capabilities.
//!
//! The rights of a command are those of its caller (`ubtrfs_fuse::caller`). Some commands are for administrators, and
//! for a user on the user's own mount, who may read its devices. They read the volume as it is on disk, or what the
//! kernel's btrfs finds by searching its trees, or change mount options. Root without CAP_SYS_ADMIN is no
//! administrator.
//!
//! Written data may still be in the kernel. Before commands that look at data, the client has it written back (syncfs).
//! If it says that it could not, the server has the kernel write. The server makes a subvolume read-only right after
//! that, as it would refuse later data otherwise.

mod client;
mod leaving;
mod mounted;
mod protocol;
mod relay;
mod server;
mod socket_file;

pub(crate) use client::{Outcome, run_elsewhere};
pub(crate) use leaving::{Asked, Leaving, Unmounted};
pub(crate) use mounted::mountpoint_of;
pub(crate) use protocol::receiving;
pub(crate) use server::{Control, Leavers, Served};

/// The command that reads a stream, which the client opens.
const RECEIVE: &str = "receive";
/// The command that writes a stream.
const SEND: &str = "send";

/// Groups of commands, and commands, that work on a path in a mount.
pub(crate) const GROUPS: [&str; 7] = [
    "device",
    "filesystem",
    "inspect-internal",
    "property",
    RECEIVE,
    SEND,
    "subvolume",
];

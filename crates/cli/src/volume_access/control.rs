//! Commands on a path in a mount: the process that serves the mount runs them on its open volume.
//!
//! The command parses its arguments and finds those that are paths in a mount of ours. It sends the whole
//! command line, these paths relative to the mount's root, its standard output and its standard error. The
//! server parses the same line, writes to the client's own descriptors, and answers with the exit code. If
//! the client exits, its command ends at the next piece of output. Root does not pass its terminal to the
//! server of a user's mount (`relay`).
//!
//! A server may be older than the command, as it runs until its mount is gone. Then it returns its version
//! and does nothing. It also refuses to run commands for some callers. In both cases the command uses ioctls
//! if possible (`ioctls`), as on mounts of the kernel's btrfs. Otherwise it prints the reason. `mount -o
//! remount` needs a sync in any case, and falls back to an ioctl after any failure.
//!
//! The socket is an abstract one: it needs no folder and leaves nothing behind. Abstract names belong to a
//! network namespace. Therefore there is a second socket in a folder (`socket_file`), if a suitable folder
//! exists. Clients try it if the first one does not exist or belongs to a stranger. Its name and path are
//! random, and the mount publishes them (`CONTROL_ATTRIBUTE`).
//!
//! The user who mounted may publish any name, and in another namespace any user may take the name. Therefore:
//! - The client talks only to a process that proves to be the mount's server (`Nonce`). It must belong to
//!   root or to the user who mounted, according to the kernel's mount table.
//! - The server talks only to these two users, and only about its own mount.
//!
//! User ids are relative to each user namespace: a user without an id in the server's namespace is a
//! stranger. If the client is outside the server's pid namespace, only its user and group are known, and it
//! has no capabilities.
//!
//! A command has the rights of its caller (`ubtrfs_fuse::caller`). Some commands are for administrators, and
//! for users on their own mounts, whose devices they may read. These commands read the volume as it is on
//! disk, search its trees like the kernel's btrfs, or change mount options. Root without CAP_SYS_ADMIN is not
//! an administrator.
//!
//! Written data may still be in the kernel's cache. Before commands that read data, the client makes the
//! kernel write it back (syncfs). If the client could not, the server does. The server makes a subvolume
//! read-only right after that, because it would refuse later data.

mod client;
mod mounted;
mod protocol;
mod relay;
mod server;
mod socket_file;
mod unmount_request;

pub(crate) use client::{Outcome, run_elsewhere};
pub(crate) use mounted::mountpoint_of;
pub(crate) use protocol::receiving;
pub(crate) use server::{Control, Served, UnmountClients};
pub(crate) use unmount_request::{UnmountAnswer, UnmountRequest, Unmounted};

/// The command that reads a stream, which the client opens.
const RECEIVE: &str = "receive";
/// The command that writes a stream.
const SEND: &str = "send";

/// The group of commands that use ioctls on mounts, as the work runs on after the client.
const BY_IOCTLS: &str = "scrub";

/// Groups of commands, and single commands, that work on a path in a mount.
pub(crate) const GROUPS: [&str; 8] = [
    "device",
    "filesystem",
    "inspect-internal",
    "property",
    RECEIVE,
    "replace",
    SEND,
    "subvolume",
];

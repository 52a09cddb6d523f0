//! Commands on a path in a mount: the process that serves the mount runs them on its open volume.
//!
//! The command parses its arguments, finds those that are paths in a mount of ours, and sends the whole command
//! line with what these paths are from the mount's root, its standard output and standard error. The server
//! parses the same line, writes to the client's own descriptors, and answers with the exit code. A client that
//! goes away ends its command at the next piece of output. Root does not hand its terminal to the server of a user's
//! mount (`relay`).
//!
//! A server may be older than the command, as it runs until its mount is gone. Then it says its version and does
//! nothing. Where no server runs the command, because of that or of who asks, it is done by ioctls if it can be
//! (`ioctls`), as on mounts of the kernel's btrfs; else the command says why. That all is durable, which
//! `mount -o remount` needs, is asked by ioctl whatever went wrong.
//!
//! The socket is an abstract one: it needs no folder and leaves nothing behind. As abstract names are those of a network
//! namespace, there is another in a folder (`socket_file`), where there is a folder for that, which clients try when the
//! first leads to nobody or to a stranger. Its name and its path are random, and the mount hands them out
//! (`CONTROL_ATTRIBUTE`). Whoever mounted may hand out any, and in another namespace anybody may take the name: so the
//! client talks only to a process of root or of the user who mounted (the kernel's table says who) that proves to be
//! the mount's (`Nonce`), and the server only to these two users, and only about its own mount.
//!
//! Users are numbers of each one's user namespace: who has none in the server's counts as a stranger. Of a process
//! that the server's pid namespace does not have nothing but user and group is known: it acts without capabilities.
//!
//! What a caller may do follows the caller's own rights (`ubtrfs_fuse::caller`). Reading the volume as it is on disk,
//! what the kernel's btrfs finds by searching its trees, and other mount options are for administrators, and for a user
//! on the user's own mount, who may read its devices: root without CAP_SYS_ADMIN is no administrator.
//!
//! Written data may still be in the kernel: the client has it written back (syncfs) before commands that look
//! at data, or says that it could not, and the server has the kernel write. A subvolume is made read-only by the server
//! right after that, which else would refuse what came since.

mod client;
mod leaving;
mod mounted;
mod protocol;
mod relay;
mod server;
mod socket_file;

pub(crate) use client::{Outcome, run_elsewhere};
pub(crate) use leaving::{Asked, Leaving, Left};
pub(crate) use mounted::mountpoint_of;
pub(crate) use server::{Control, Leavers, Served};

/// Groups of commands that work on a path in a mount.
pub(crate) const GROUPS: [&str; 5] = [
    "device",
    "filesystem",
    "inspect-internal",
    "property",
    "subvolume",
];

//! Callers of operations that only btrfs has, and the rights that the kernel's btrfs would check.
//!
//! The kernel checks ordinary permissions before it sends a request to a FUSE server. Ioctls and the control socket
//! bypass those checks. So the checks of the kernel's btrfs are repeated (`ubtrfs_fs::rights`). This module turns a
//! process into a caller. Capabilities are read from the calling thread, and count only in the user namespace of this
//! process.

mod ending;
mod peer;
mod system_call;

use std::fs;
use std::io;
use std::path::Path;

pub(crate) use ubtrfs_fs::rights::WRITE;
pub use ubtrfs_fs::rights::{Caller, Refused, Rights};
use ubtrfs_fuse_server::request::Context;

pub(crate) use self::ending::EndingCaller;
pub use self::peer::Peer;
pub(crate) use self::system_call::{SystemCall, finds_by_handle};

/// The initial pid namespace, as links below `/proc` display it.
const FIRST_PIDS: &str = "pid:[4026531836]";
const FIRST_USERS: &str = "user:[4026531837]";

/// The umask assumed for a process that cannot be inspected.
const UMASK: u32 = 0o022;

/// Reads the rights of the process or thread `pid`, which acts as this user and group, or for [`Context::NOBODY`] as
/// its own. A process that cannot be inspected has no capabilities and no supplementary groups.
pub fn caller_of(pid: u32, uid: u32, gid: u32) -> Caller {
    let folder = format!("/proc/{pid}");
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    // The last of the four ids is the one for file systems (fsuid).
    let own = |name| field(name)?.split_whitespace().nth(3)?.parse().ok();
    let or_own = |id, name| {
        if id == Context::NOBODY {
            own(name).unwrap_or(id)
        } else {
            id
        }
    };
    let (uid, gid) = (or_own(uid, "Uid"), or_own(gid, "Gid"));
    let groups = field("Groups").unwrap_or_default().split_whitespace();
    let umask = field("Umask").and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    let capabilities = field("CapEff").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    Caller::new(uid, gid)
        .umask(umask.unwrap_or(UMASK))
        .groups(groups.filter_map(|group| group.parse().ok()).collect())
        .capabilities(if is_in_our_namespace(Path::new(&folder)) {
            capabilities.unwrap_or(0)
        } else {
            0
        })
}

/// Returns whether every process of this system can be inspected, so that requests need not include the user.
pub(crate) fn sees_all_callers() -> bool {
    let is = |name: &str, wanted: &str| {
        fs::read_link(format!("/proc/self/ns/{name}")).is_ok_and(|link| link == Path::new(wanted))
    };
    rustix::process::geteuid().is_root() && is("pid", FIRST_PIDS) && is("user", FIRST_USERS)
}

/// Returns whether the caller is the user of this process, and not root.
pub fn is_our_user(caller: &Caller) -> bool {
    let ours = rustix::process::geteuid();
    !ours.is_root() && caller.uid == ours.as_raw()
}

/// Allows administrative operations on a mount to the user who owns it. This process serves the mount with the rights
/// of that user.
pub fn administer_mount(rights: Rights<'_>) -> Result<(), Refused> {
    if is_our_user(rights.caller) {
        Ok(())
    } else {
        rights.administer()
    }
}

/// Returns whether capabilities of the process are valid in our user namespace.
fn is_in_our_namespace(process: &Path) -> bool {
    let namespace = |folder: &Path| fs::read_link(folder.join("ns/user"));
    let this = Path::new("/proc/self");
    match (namespace(this), namespace(process)) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        // A user may not look at the namespace of root, but at its uid map. A namespace that root created can have an
        // equal map: a process there is root's, too.
        (Ok(_), Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let users = |folder: &Path| fs::read_to_string(folder.join("uid_map")).ok();
            let ours = users(this);
            ours.is_some() && users(process) == ours
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

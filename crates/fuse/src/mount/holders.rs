//! Processes that still have one of our file systems mounted, one for each mount namespace.
//!
//! The source is `/proc`. It lacks processes of other pid namespaces, namespaces that only a descriptor keeps alive,
//! and mounts that were detached while in use.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};
use rustix::io::Errno;

use crate::mount_table::table_of;

/// A process with a mount, and the number of others that share the mount with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// The process name in the kernel, which is truncated to 15 bytes.
    pub command: String,
    /// The mount point as the process sees it.
    pub mountpoint: PathBuf,
    pub others: usize,
}

/// Lists the first process of each namespace that has a mount of the device.
pub fn holders_of(device: (u32, u32)) -> Vec<Holder> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pids: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    let mut holders: Vec<Holder> = Vec::new();
    let mut of_mounts: HashMap<u64, usize> = HashMap::new();
    for pid in pids {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let mut table = table_of(&folder).unwrap_or_default().into_iter();
        let Some(entry) = table.find(|entry| entry.device == device && entry.is_ours()) else {
            continue;
        };
        // A mount belongs to one namespace, so its id identifies the namespace even without the right to read that.
        match of_mounts.get(&entry.id) {
            Some(&at) => holders[at].others += 1,
            None => {
                of_mounts.insert(entry.id, holders.len());
                holders.push(Holder {
                    pid,
                    command: command_of(&folder),
                    mountpoint: entry.mountpoint,
                    others: 0,
                });
            }
        }
    }
    holders
}

/// Returns whether a process uses a FUSE file system of the device after its connection has ended. Checks open and
/// mapped files, and the working and root directories.
pub(super) fn keeps_dead(device: (u32, u32)) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = processes.filter(|process| {
        let name = process.file_name();
        name.to_str()
            .is_some_and(|name| name.parse::<u32>().is_ok())
    });
    processes.any(|process| {
        let process = process.path();
        let links = ["fd", "map_files"].map(|folder| fs::read_dir(process.join(folder)));
        let links = links.into_iter().flatten().flatten().flatten();
        let links = links.map(|link| link.path());
        let mut links = links.chain(["cwd", "root"].map(|link| process.join(link)));
        links.any(|link| is_dead(&link, device))
    })
}

/// Returns whether a link leads to a file of the device, and its server is gone. Reads the device's number without a
/// request to any server, and accesses only files of this device.
fn is_dead(link: &Path, device: (u32, u32)) -> bool {
    let found = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    found.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == device)
        && statfs(link).is_err_and(is_of_dead_server)
}

/// Returns whether the kernel returns this error after the server has gone. A pending request is aborted, or over
/// io_uring canceled: the connection may live a moment longer than the process.
pub(super) fn is_of_dead_server(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

fn command_of(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

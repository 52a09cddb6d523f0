//! Callers that ask for something that only btrfs has, and what the kernel's btrfs would let them do.
//!
//! The kernel checks permissions of what every file system has before it asks a FUSE server. Ioctls and the control
//! socket go past that. So what the kernel's btrfs asks for each of them is asked again here: modes, ACLs, owners
//! and capabilities. Capabilities are those of the calling thread, and count only in the user namespace of this
//! process.
//!
//! Not here: what flags and read-only subvolumes forbid to everybody (the engine's).

mod acl;
mod ending;
mod peer;
mod rights;

use std::fs;
use std::path::Path;

use ubtrfs_engine::{Attr, Error, FileId, FileKind, Volume};

pub(crate) use self::ending::EndingCaller;
pub use self::peer::Peer;
pub use self::rights::{Refused, Rights};

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_SYS_ADMIN: u32 = 21;

/// The rights asked for: read 4, write 2, execute or search 1.
pub(crate) type Mask = u32;
pub(crate) const READ: Mask = 4;
pub(crate) const WRITE: Mask = 2;
pub(crate) const SEARCH: Mask = 1;

/// A process, as far as rights go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// The bits that files it makes go without.
    pub umask: u32,
    groups: Vec<u32>,
    /// A bit for each.
    capabilities: u64,
}

impl Caller {
    /// The process or thread `pid`, which acts as this user and group. One that cannot be looked at has no
    /// capabilities and no further groups.
    pub fn of_process(pid: u32, uid: u32, gid: u32) -> Caller {
        let folder = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let groups = field("Groups").unwrap_or_default().split_whitespace();
        let umask = field("Umask").and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
        let capabilities =
            field("CapEff").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        Caller {
            uid,
            gid,
            umask: umask.unwrap_or(0o022),
            groups: groups.filter_map(|group| group.parse().ok()).collect(),
            capabilities: match is_in_our_namespace(Path::new(&folder)) {
                true => capabilities.unwrap_or(0),
                false => 0,
            },
        }
    }

    /// Gives the process all rights.
    pub fn as_superuser(self) -> Caller {
        Caller {
            capabilities: u64::MAX,
            ..self
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }

    /// Whether it may do what concerns the volume as a whole.
    pub fn is_administrator(&self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// Whether it is the user, not root, whose process this is.
    pub fn is_our_user(&self) -> bool {
        let ours = rustix::process::geteuid();
        !ours.is_root() && self.uid == ours.as_raw()
    }

    /// Whether it owns the file, or counts as one who does.
    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        self.uid == attr.uid || self.has(CAP_FOWNER)
    }

    /// Whether a file of this group stays setgid when it writes to it.
    pub(crate) fn keeps_setgid(&self, gid: u32) -> bool {
        self.is_in_group(gid) || self.has(CAP_FSETID)
    }

    fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it may do all of `mask` to a file, by its mode and ACL, if ACLs count.
    ///
    /// Locks: none of an inode, which may be locked.
    pub(crate) fn may(&self, volume: &Volume, file: FileId, mask: Mask) -> Result<bool, Error> {
        let attr = volume.stored_attr(file)?;
        let acl = match volume.counts_acls() && !file.is_empty_subvolume_dir() {
            true => volume.xattr(file, acl::ACCESS)?,
            false => None,
        };
        let granted = match acl.as_deref().and_then(acl::entries) {
            Some(entries) => acl::grants(&entries, self, &attr, mask),
            None => self.class_bits(&attr) & mask == mask,
        };
        let is_dir = attr.kind == FileKind::Directory;
        // A caller that may override everything still executes no file without an execute bit.
        let overridden = match is_dir || mask & SEARCH == 0 || attr.mode & 0o111 != 0 {
            true => self.has(CAP_DAC_OVERRIDE),
            false => false,
        };
        let searched =
            self.has(CAP_DAC_READ_SEARCH) && mask & WRITE == 0 && (is_dir || mask & SEARCH == 0);
        Ok(granted || overridden || searched)
    }

    /// The rights that the mode grants.
    fn class_bits(&self, attr: &Attr) -> Mask {
        if self.uid == attr.uid {
            attr.mode >> 6 & 7
        } else if self.is_in_group(attr.gid) {
            attr.mode >> 3 & 7
        } else {
            attr.mode & 7
        }
    }
}

/// Whether capabilities of this process are capabilities here.
fn is_in_our_namespace(process: &Path) -> bool {
    let namespace = |folder: &Path| fs::read_link(folder.join("ns/user")).ok();
    let ours = namespace(Path::new("/proc/self"));
    ours.is_some() && namespace(process) == ours
}

#[cfg(test)]
mod tests;

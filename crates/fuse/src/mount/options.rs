//! The options of `-o`, by the names of `mount -t btrfs`, mount(8) and FUSE.
//!
//! Every option that the kernel's btrfs knows is known here: it is obeyed, or has no meaning for a mount
//! that is read-only and is accepted, or is refused with the reason. What nobody knows is refused by
//! name. Later words override earlier ones, as in mount(8).

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_format::ids::RootId;

use crate::transport::TransportChoice;

/// What the words of `-o` ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Asked for in so many words, or not said.
    pub read_only: Option<bool>,
    /// Path of the subvolume to mount, from the top of the volume.
    pub subvol: Option<Vec<u8>>,
    /// Id of the subvolume to mount.
    pub subvolid: Option<RootId>,
    pub degraded: bool,
    pub rescue: Rescue,
    /// Devices to take in besides the one named.
    pub devices: Vec<PathBuf>,
    /// Shown as the mount's source instead of the image.
    pub fsname: Option<Vec<u8>>,
    /// Whether other users may enter; if not said, they may when root mounts.
    pub allow_other: Option<bool>,
    /// The user who mounts may do everything, whatever modes and owners say.
    pub fakeroot: bool,
    /// POSIX ACLs do not count.
    pub no_acl: bool,
    pub threads: Option<NonZeroUsize>,
    pub transport: TransportChoice,
    pub suid: bool,
    pub dev: bool,
    pub no_exec: bool,
    pub no_atime: bool,
    /// Words that were accepted and change nothing.
    pub without_effect: Vec<String>,
}

/// Ways to read a damaged volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    pub use_backup_root: bool,
    pub no_log_replay: bool,
    pub ignore_bad_roots: bool,
    pub ignore_data_csums: bool,
    pub ignore_meta_csums: bool,
    pub ignore_super_flags: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionError {
    #[error("read-write mounts are not supported yet; use -o ro")]
    ReadWrite,
    #[error("unknown mount option '{0}'")]
    Unknown(String),
    #[error("mount option '{0}' needs a value")]
    NoValue(String),
    #[error("mount option '{0}' takes no value")]
    UnwantedValue(String),
    #[error("mount option '{name}': bad value '{value}'")]
    BadValue { name: String, value: String },
    #[error("mount option '{0}' is not supported")]
    Unsupported(String),
    #[error("mount options '{0}' and '{1}' exclude each other")]
    Conflict(&'static str, &'static str),
}

/// Options of the kernel's btrfs without a value that do nothing to a read-only mount.
const IDLE: &[&str] = &[
    "autodefrag",
    "barrier",
    "clear_cache",
    "compress",
    "compress-force",
    "datacow",
    "datasum",
    "discard",
    "enospc_debug",
    "flushoncommit",
    "inode_cache",
    "nobarrier",
    "nodatacow",
    "nodatasum",
    "nodiscard",
    "noautodefrag",
    "noenospc_debug",
    "noflushoncommit",
    "noinode_cache",
    "nospace_cache",
    "nossd",
    "nossd_spread",
    "notreelog",
    "nouser_subvol_rm_allowed",
    "rescan_uuid_tree",
    "skip_balance",
    "space_cache",
    "ssd",
    "ssd_spread",
    "treelog",
    "user_subvol_rm_allowed",
];

/// The same, with a value.
const IDLE_WITH_VALUE: &[&str] = &[
    "commit",
    "compress",
    "compress-force",
    "discard",
    "fatal_errors",
    "max_inline",
    "metadata_ratio",
    "space_cache",
];

/// Words of mount(8) and fstab(5) that are for mount(8), or do nothing to a read-only mount.
const GENERIC: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "defaults",
    "diratime",
    "dirsync",
    "group",
    "iversion",
    "lazytime",
    "loop",
    "loud",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "noiversion",
    "nolazytime",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "silent",
    "strictatime",
    "sync",
];

impl Options {
    /// Takes the words of one `-o` in.
    pub fn add(&mut self, words: &OsStr) -> Result<(), OptionError> {
        words
            .as_bytes()
            .split(|&byte| byte == b',')
            .filter(|word| !word.is_empty())
            .try_for_each(|word| self.add_word(word))
    }

    /// Checks what only all the words together tell.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.read_only != Some(true) {
            return Err(OptionError::ReadWrite);
        }
        if self.fakeroot && self.allow_other == Some(true) {
            return Err(OptionError::Conflict("fakeroot", "allow_other"));
        }
        Ok(())
    }

    fn add_word(&mut self, word: &[u8]) -> Result<(), OptionError> {
        let mut parts = word.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        match parts.next() {
            Some(value) => self.add_with_value(&name, value, word),
            None => self.add_plain(&name),
        }
    }

    fn add_plain(&mut self, name: &str) -> Result<(), OptionError> {
        match name {
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "degraded" => self.degraded = true,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            "allow_other" => self.allow_other = Some(true),
            "fakeroot" => self.fakeroot = true,
            "default_permissions" => self.fakeroot = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "noatime" => self.no_atime = true,
            "user" | "users" => {
                // As in mount(8): what a user may mount is not to be trusted.
                self.suid = false;
                self.dev = false;
                self.no_exec = true;
            }
            "usebackuproot" | "recovery" => self.rescue.use_backup_root = true,
            "nologreplay" | "norecovery" => self.rescue.no_log_replay = true,
            "allow_root" | "auto_unmount" | "blkdev" | "remount" | "bind" | "rbind" | "move" => {
                return Err(OptionError::Unsupported(name.into()));
            }
            "subvol" | "subvolid" | "rescue" | "device" | "threads" | "thread_pool"
            | "transport" | "fsname" | "commit" | "max_inline" | "metadata_ratio"
            | "fatal_errors" => {
                return Err(OptionError::NoValue(name.into()));
            }
            _ if IDLE.contains(&name) || GENERIC.contains(&name) || is_for_others(name) => {
                self.without_effect.push(name.into());
            }
            _ => return Err(OptionError::Unknown(name.into())),
        }
        Ok(())
    }

    fn add_with_value(&mut self, name: &str, value: &[u8], word: &[u8]) -> Result<(), OptionError> {
        let bad = || OptionError::BadValue {
            name: name.into(),
            value: String::from_utf8_lossy(value).into_owned(),
        };
        let text = || std::str::from_utf8(value).map_err(|_| bad());
        match name {
            "subvol" => self.subvol = Some(value.into()),
            // 0 means the top level, as it does to the kernel.
            "subvolid" => {
                self.subvolid = Some(match number(text()?).ok_or_else(bad)? {
                    0 => RootId::FS_TREE,
                    id => RootId(id),
                });
            }
            "rescue" => text()?
                .split(':')
                .try_for_each(|way| self.add_rescue(way).ok_or_else(bad))?,
            "device" if value.is_empty() => return Err(bad()),
            "device" => self.devices.push(OsStr::from_bytes(value).into()),
            "fsname" => self.fsname = Some(value.into()),
            "threads" | "thread_pool" => {
                let threads = number(text()?)
                    .and_then(|threads| usize::try_from(threads).ok())
                    .filter(|&threads| threads <= 1024)
                    .and_then(NonZeroUsize::new);
                self.threads = Some(threads.ok_or_else(bad)?);
            }
            "transport" => {
                self.transport = match text()? {
                    "auto" => TransportChoice::Auto,
                    "uring" => TransportChoice::Uring,
                    "classic" => TransportChoice::Classic,
                    _ => return Err(bad()),
                };
            }
            "subtype" if value == b"ubtrfs" => {}
            "subtype" | "uid" | "gid" | "umask" | "fd" | "rootmode" | "user_id" | "group_id"
            | "max_read" | "blksize" => return Err(OptionError::Unsupported(name.into())),
            _ if IDLE_WITH_VALUE.contains(&name) || is_for_others(name) => {
                self.without_effect
                    .push(String::from_utf8_lossy(word).into_owned());
            }
            _ if Self::default().add_plain(name).is_ok() => {
                return Err(OptionError::UnwantedValue(name.into()));
            }
            _ => return Err(OptionError::Unknown(name.into())),
        }
        Ok(())
    }

    fn add_rescue(&mut self, way: &str) -> Option<()> {
        let rescue = &mut self.rescue;
        match way {
            "usebackuproot" => rescue.use_backup_root = true,
            "nologreplay" => rescue.no_log_replay = true,
            "ignorebadroots" | "ibadroots" => rescue.ignore_bad_roots = true,
            "ignoredatacsums" | "idatacsums" => rescue.ignore_data_csums = true,
            "ignoremetacsums" | "imetacsums" => rescue.ignore_meta_csums = true,
            "ignoresuperflags" | "isuperflags" => rescue.ignore_super_flags = true,
            // What "all" stands for, as the kernel has it: everything that makes the most readable.
            "all" => {
                rescue.no_log_replay = true;
                rescue.ignore_bad_roots = true;
                rescue.ignore_data_csums = true;
                rescue.ignore_meta_csums = true;
                rescue.ignore_super_flags = true;
            }
            _ => return None,
        }
        Some(())
    }
}

/// Words that fstab(5) leaves to other programs.
fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}

/// A number as the kernel reads it from an option: decimal, or hexadecimal after 0x, or octal after 0.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;

//! The options of `-o`, by the names of `mount -t btrfs`, mount(8) and FUSE.
//!
//! Every option of the kernel's btrfs is known here. It is obeyed, or accepted with a note that it does nothing, or
//! refused with the reason. Unknown words are errors. Later words override earlier ones, as in mount(8), with the
//! implications that the kernel has: compression ends `nodatacow`, and so on.
//!
//! Not here: the lists of words (`words`), values (`values`), options of the engine (`volume`).

mod values;
mod volume;
mod words;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{AtimePolicy, Compress, DiscardMode};
use ubtrfs_fuse_server::TransportChoice;

use self::words::{IDLE, IDLE_WITH_VALUE, NEEDS_VALUE, SECURITY, UNSUPPORTED, is_for_others};
pub(super) use self::words::{is_live, is_set_by_mount, split};

/// The mount options that the words of `-o` set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Set explicitly, or `None`.
    pub read_only: Option<bool>,
    /// Path of the subvolume to mount, from the top of the volume.
    pub subvol: Option<Vec<u8>>,
    /// Id of the subvolume to mount.
    pub subvolid: Option<RootId>,
    pub degraded: bool,
    pub rescue: Rescue,
    /// Further devices of the volume.
    pub devices: Vec<PathBuf>,
    /// Displayed as the mount's source instead of the image.
    pub fsname: Option<Vec<u8>>,
    /// Whether other users may enter; by default they may if root mounts.
    pub allow_other: Option<bool>,
    /// The mounting user may do everything, regardless of modes and owners.
    pub fakeroot: bool,
    /// POSIX ACLs are ignored.
    pub no_acl: bool,
    pub threads: Option<NonZeroUsize>,
    pub transport: TransportChoice,
    pub block_mount: BlockMount,
    /// Whether an image is mounted through a loop device, like a block device; by default it is not.
    pub loop_mount: Option<bool>,
    /// The kernel uses a writeback cache. By default each write is sent at once.
    pub writeback: bool,
    /// The kernel sends opens, so that inode flags forbid opens and not only later changes.
    pub opens: bool,
    /// Whether set-id bits and device nodes are effective; by default they are if root mounts.
    pub suid: Option<bool>,
    pub dev: Option<bool>,
    pub no_exec: bool,
    pub no_symfollow: bool,
    pub atime: AtimePolicy,
    pub no_diratime: bool,
    /// Changes of times alone stay in memory until the inode changes otherwise or is synced, or for a day.
    pub lazy_times: bool,
    /// Each write is durable when it returns.
    pub sync: bool,
    /// Each change of a directory is durable when it returns.
    pub dirsync: bool,
    pub compress: Compress,
    pub no_data_cow: bool,
    pub no_data_sum: bool,
    pub max_inline_bytes: Option<u64>,
    /// The memory that caches and budgets are fractions of; by default the limit of the machine and the control groups.
    pub memory_bytes: Option<u64>,
    pub commit: Option<Duration>,
    pub flush_on_commit: bool,
    /// When freed space is discarded; by default in the background, on devices that support it.
    pub discard: Option<DiscardMode>,
    /// fsync of a single file commits, and writes no log.
    pub no_tree_log: bool,
    /// The free-space tree is rebuilt.
    pub clear_cache: bool,
    /// A volume without a free-space tree gets one.
    pub free_space_tree: bool,
    /// Words for the kernel's security module.
    pub security: Vec<String>,
    /// Users may delete their own subvolumes.
    pub user_subvol_rm_allowed: bool,
    /// The target of logs: a path, or `syslog`, or `stderr`.
    pub log: Option<Vec<u8>>,
    /// The minimum level of log messages.
    pub log_level: Option<String>,
    /// Accepts unknown words (`mount -s`).
    pub sloppy: bool,
    /// The words that were accepted and have no effect.
    pub without_effect: Vec<WithoutEffect>,
}

/// Whether a block device is mounted as `fuseblk`, so that umount waits for the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockMount {
    /// If possible.
    #[default]
    Auto,
    Always,
    Never,
}

/// A word that was accepted and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    pub word: String,
    /// The reason why users of the option should know that.
    pub warning: Option<&'static str>,
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
    #[error("unknown mount option '{0}'")]
    Unknown(String),
    #[error("mount option '{0}' needs a value")]
    NoValue(String),
    #[error("mount option '{0}' takes no value")]
    UnwantedValue(String),
    #[error("mount option '{name}': bad value '{value}'")]
    BadValue { name: String, value: String },
    #[error("mount option '{0}' is not supported: {1}")]
    Unsupported(String, &'static str),
    #[error("mount options '{0}' and '{1}' exclude each other")]
    Conflict(&'static str, &'static str),
    #[error("mount option '{0}' needs 'ro' as well")]
    NeedsReadOnly(&'static str),
}

impl Options {
    /// Returns whether the kernel must send opens. With a writeback cache, the mount has to know which files may have
    /// dirty pages.
    pub(super) fn needs_opens(&self) -> bool {
        self.opens || self.writeback
    }

    /// Adds the words of one `-o`.
    pub fn add(&mut self, words: &OsStr) -> Result<(), OptionError> {
        split(words).try_for_each(|word| match self.add_word(word) {
            Err(OptionError::Unknown(word)) if self.sloppy => {
                self.idle(word, Some("no such option is known"));
                Ok(())
            }
            outcome => outcome,
        })
    }

    /// Checks combinations of words.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.rescue.needs_read_only() && self.read_only != Some(true) {
            return Err(OptionError::NeedsReadOnly("rescue"));
        }
        if self.fakeroot && self.allow_other == Some(true) {
            return Err(OptionError::Conflict("fakeroot", "allow_other"));
        }
        // The kernel displays the loop device as the source.
        if self.loop_mount == Some(true) && self.fsname.is_some() {
            return Err(OptionError::Conflict("loop", "fsname"));
        }
        Ok(())
    }

    fn idle(&mut self, word: impl Into<String>, warning: Option<&'static str>) {
        self.without_effect.push(WithoutEffect {
            word: word.into(),
            warning,
        });
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
        if self.add_volume_flag(name) || self.add_mount_flag(name) {
            return Ok(());
        }
        if let Some((_, reason)) = UNSUPPORTED.iter().find(|(word, _)| *word == name) {
            return Err(OptionError::Unsupported(name.into(), reason));
        }
        if NEEDS_VALUE.contains(&name) {
            return Err(OptionError::NoValue(name.into()));
        }
        let idle = IDLE.iter().find(|(word, _)| *word == name);
        match idle {
            Some((_, warning)) => self.idle(name, *warning),
            None if is_for_others(name) => self.idle(name, None),
            None => return Err(OptionError::Unknown(name.into())),
        }
        Ok(())
    }

    /// Adds a flag of mount(8) or FUSE. Returns whether the word is one.
    fn add_mount_flag(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "allow_other" => self.allow_other = Some(true),
            "fakeroot" => self.fakeroot = true,
            "default_permissions" => self.fakeroot = false,
            "blkdev" => self.block_mount = BlockMount::Always,
            "noblkdev" => self.block_mount = BlockMount::Never,
            "loop" => self.loop_mount = Some(true),
            "noloop" => self.loop_mount = Some(false),
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "opens" => self.opens = true,
            "noopens" => self.opens = false,
            "suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "dev" => self.dev = Some(true),
            "nodev" => self.dev = Some(false),
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "symfollow" => self.no_symfollow = false,
            "nosymfollow" => self.no_symfollow = true,
            "noatime" => self.atime = AtimePolicy::Never,
            "atime" | "relatime" | "nostrictatime" => self.atime = AtimePolicy::Relative,
            "strictatime" | "norelatime" => self.atime = AtimePolicy::Always,
            "nodiratime" => self.no_diratime = true,
            "diratime" => self.no_diratime = false,
            "lazytime" => self.lazy_times = true,
            "nolazytime" => self.lazy_times = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            // As in mount(8): a volume that a user may mount is not trusted.
            "user" | "users" | "owner" | "group" => {
                self.suid = Some(false);
                self.dev = Some(false);
                self.no_exec |= name.starts_with("user");
            }
            _ => return false,
        }
        true
    }

    fn add_with_value(&mut self, name: &str, value: &[u8], word: &[u8]) -> Result<(), OptionError> {
        let bad = || OptionError::BadValue {
            name: name.into(),
            value: String::from_utf8_lossy(value).into_owned(),
        };
        let text = || std::str::from_utf8(value).map_err(|_| bad());
        match name {
            "subvol" if value.is_empty() => return Err(bad()),
            "subvol" => self.subvol = Some(value.into()),
            // 0 is the top level, as in the kernel.
            "subvolid" => {
                self.subvolid = Some(match values::number(text()?).ok_or_else(bad)? {
                    0 => RootId::FS_TREE,
                    id => RootId(id),
                });
            }
            "rescue" => text()?
                .split(':')
                .try_for_each(|way| self.rescue.add(way).ok_or_else(bad))?,
            "device" if value.is_empty() => return Err(bad()),
            "device" => self.devices.push(OsStr::from_bytes(value).into()),
            "fsname" => self.fsname = Some(value.into()),
            "threads" | "thread_pool" => {
                let threads = values::number(text()?)
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
            "log" if value.is_empty() => return Err(bad()),
            "log" => self.log = Some(value.into()),
            "loglevel" => self.log_level = Some(text()?.into()),
            "subtype" if value == b"ubtrfs" => {}
            _ if SECURITY.contains(&name) => {
                self.security.push(String::from_utf8_lossy(word).into())
            }
            _ if self.add_volume_value(name, text()?).ok_or_else(bad)? => {}
            _ => return self.add_idle_value(name, word),
        }
        Ok(())
    }

    fn add_idle_value(&mut self, name: &str, word: &[u8]) -> Result<(), OptionError> {
        if let Some((_, reason)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
            return Err(OptionError::Unsupported(name.into(), reason));
        }
        if IDLE_WITH_VALUE.contains(&name) || is_for_others(name) {
            self.idle(String::from_utf8_lossy(word), None);
            return Ok(());
        }
        if Self::default().add_plain(name).is_ok() {
            return Err(OptionError::UnwantedValue(name.into()));
        }
        Err(OptionError::Unknown(name.into()))
    }
}

impl Rescue {
    /// Returns whether the mount must be read-only. With roots of an earlier transaction it may be writable, as in the
    /// kernel.
    pub(super) fn needs_read_only(self) -> bool {
        let others = Rescue {
            use_backup_root: false,
            ..self
        };
        others != Rescue::default()
    }

    fn of_engine(&self) -> ubtrfs_fs::Rescue {
        ubtrfs_fs::Rescue {
            use_backup_root: self.use_backup_root,
            ignore_bad_roots: self.ignore_bad_roots,
            ignore_data_csums: self.ignore_data_csums,
            ignore_meta_csums: self.ignore_meta_csums,
            ignore_super_flags: self.ignore_super_flags,
            no_log_replay: self.no_log_replay,
            ..ubtrfs_fs::Rescue::default()
        }
    }

    fn add(&mut self, way: &str) -> Option<()> {
        match way {
            "usebackuproot" => self.use_backup_root = true,
            "nologreplay" => self.no_log_replay = true,
            "ignorebadroots" | "ibadroots" => self.ignore_bad_roots = true,
            "ignoredatacsums" | "idatacsums" => self.ignore_data_csums = true,
            "ignoremetacsums" | "imetacsums" => self.ignore_meta_csums = true,
            "ignoresuperflags" | "isuperflags" => self.ignore_super_flags = true,
            // "all" sets every option that makes more of the volume readable, as in the kernel.
            "all" => {
                self.no_log_replay = true;
                self.ignore_bad_roots = true;
                self.ignore_data_csums = true;
                self.ignore_meta_csums = true;
                self.ignore_super_flags = true;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;

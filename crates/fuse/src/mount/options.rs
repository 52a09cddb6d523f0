//! The options of `-o`, by the names of `mount -t btrfs`, mount(8) and FUSE.
//!
//! Every option that the kernel's btrfs knows is known here: it is obeyed, or accepted and said to do
//! nothing, or refused with the reason. Unknown words are refused by name. Later words override earlier
//! ones, as in mount(8), with the consequences that the kernel draws: compression ends `nodatacow`, and so on.
//!
//! Not here: which words there are (`words`), values (`values`), what they ask of the engine (`volume`).

mod values;
mod volume;
mod words;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_engine::{AtimePolicy, Compress, DiscardMode};
use ubtrfs_format::ids::RootId;
use ubtrfs_fuse_server::TransportChoice;

use self::words::{IDLE, IDLE_WITH_VALUE, NEEDS_VALUE, SECURITY, UNSUPPORTED, is_for_others};
pub(super) use self::words::{is_live, is_set_by_mount, split};

/// The options that the words of `-o` ask for.
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
    /// The user that mounts may do everything, whatever modes and owners say.
    pub fakeroot: bool,
    /// POSIX ACLs do not count.
    pub no_acl: bool,
    pub threads: Option<NonZeroUsize>,
    pub transport: TransportChoice,
    pub block_mount: BlockMount,
    /// Whether an image is mounted by a loop device, as a block device is; if not said, it is not.
    pub loop_mount: Option<bool>,
    /// The kernel collects what is written, and writes it when it likes. If not said, each write comes at once.
    pub writeback: bool,
    /// The kernel asks before it opens a file, so that flags of inodes forbid opens and not only what follows.
    pub opens: bool,
    /// Whether set-id bits count, and device nodes; if not said, they do when root mounts.
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
    /// How much memory caches and budgets are shares of; if not said, what the machine and the control groups allow.
    pub memory_bytes: Option<u64>,
    pub commit: Option<Duration>,
    pub flush_on_commit: bool,
    /// When devices are told of freed space; if not said, in the background where a device takes discards.
    pub discard: Option<DiscardMode>,
    /// A sync of a single file is a commit, and writes no log.
    pub no_tree_log: bool,
    /// The free-space tree is made anew.
    pub clear_cache: bool,
    /// A volume without a free-space tree gets one.
    pub free_space_tree: bool,
    /// Words for the kernel's security module.
    pub security: Vec<String>,
    /// Users may delete subvolumes of theirs.
    pub user_subvol_rm_allowed: bool,
    /// Where logs go: a path, or `syslog`, or `stderr`.
    pub log: Option<Vec<u8>>,
    /// From which level on is logged.
    pub log_level: Option<String>,
    /// Takes unknown words (`mount -s`).
    pub sloppy: bool,
    /// The words that were accepted and change nothing.
    pub without_effect: Vec<WithoutEffect>,
}

/// Whether a block device is mounted as one, so that the kernel waits for the last commit when it unmounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockMount {
    /// Where it can be.
    #[default]
    Auto,
    Always,
    Never,
}

/// A word that was accepted and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    pub word: String,
    /// The reason why a user that asks for it should know.
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
    /// Returns whether the kernel is to ask before it opens a file. If it collects writes, we need to know which files
    /// those may be of.
    pub(super) fn asks_opens(&self) -> bool {
        self.opens || self.writeback
    }

    /// Takes the words of one `-o` in.
    pub fn add(&mut self, words: &OsStr) -> Result<(), OptionError> {
        split(words).try_for_each(|word| match self.add_word(word) {
            Err(OptionError::Unknown(word)) if self.sloppy => {
                self.idle(word, Some("no such option is known"));
                Ok(())
            }
            outcome => outcome,
        })
    }

    /// Checks what only all the words together tell.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.rescue.needs_read_only() && self.read_only != Some(true) {
            return Err(OptionError::NeedsReadOnly("rescue"));
        }
        if self.fakeroot && self.allow_other == Some(true) {
            return Err(OptionError::Conflict("fakeroot", "allow_other"));
        }
        // The kernel shows the loop device as the source.
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
            // As in mount(8): a volume that a user may mount is not to be trusted.
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
            // 0 means the top level, as it does to the kernel.
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
    /// Returns whether the mount must be read-only. Roots of an earlier transaction may be written to, as in the
    /// kernel.
    pub(super) fn needs_read_only(self) -> bool {
        let others = Rescue {
            use_backup_root: false,
            ..self
        };
        others != Rescue::default()
    }

    fn of_engine(&self) -> ubtrfs_engine::Rescue {
        ubtrfs_engine::Rescue {
            use_backup_root: self.use_backup_root,
            ignore_bad_roots: self.ignore_bad_roots,
            ignore_data_csums: self.ignore_data_csums,
            ignore_meta_csums: self.ignore_meta_csums,
            ignore_super_flags: self.ignore_super_flags,
            no_log_replay: self.no_log_replay,
            ..ubtrfs_engine::Rescue::default()
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
            // "all" stands for everything that makes the most readable, as in the kernel.
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

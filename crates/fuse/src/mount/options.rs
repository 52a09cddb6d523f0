//! The options of `-o`, by the names of `mount -t btrfs`, mount(8) and FUSE.
//!
//! Every option of the kernel's btrfs is known here. It is obeyed, or accepted with a note that it does nothing, or
//! refused with the reason. Unknown words are errors. Later words override earlier ones, as in mount(8), with the
//! implications that the kernel has: compression ends `nodatacow`, and so on.
//!
//! Not here: the table of words (`words`), and the table of a volume's options (`ubtrfs_fs::OPEN_OPTIONS`).

mod words;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::time::Duration;

use ubtrfs_device::{DeviceName, memory_limit};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{AtimePolicy, OpenOptions, Rescue, WordOutcome, WordRefusal};
use ubtrfs_fuse_server::TransportChoice;

use self::words::is_for_others;
pub(super) use self::words::{ATIME, Known, name_and_value, split};
pub use self::words::{words_for_help, words_of_remounts, words_to_complete};

/// The mount options that the words of `-o` set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Set explicitly, or `None`.
    pub read_only: Option<bool>,
    /// Path of the subvolume to mount, from the top of the volume.
    pub subvol: Option<Vec<u8>>,
    /// Id of the subvolume to mount.
    pub subvolid: Option<RootId>,
    /// The options of the volume, without its devices.
    pub volume: OpenOptions,
    pub rescue: Rescue,
    /// Further devices of the volume.
    pub devices: Vec<DeviceName>,
    /// Displayed as the mount's source instead of the image.
    pub fsname: Option<Vec<u8>>,
    /// Whether other users may enter; by default they may if root mounts.
    pub allow_other: Option<bool>,
    /// The mounting user may do everything, regardless of modes and owners.
    pub fakeroot: bool,
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
    /// Each write is durable when it returns.
    pub sync: bool,
    /// Each change of a directory is durable when it returns.
    pub dirsync: bool,
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
        if self.needs_read_only() && self.read_only != Some(true) {
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
        let (name, value) = name_and_value(word);
        let whole = || String::from_utf8_lossy(word);
        let Some(known) = Known::find(&name) else {
            if is_for_others(&name) {
                self.idle(whole(), None);
                return Ok(());
            }
            return Err(OptionError::Unknown(name));
        };
        match known.apply(self, value) {
            Ok(WordOutcome::Set) => Ok(()),
            Ok(WordOutcome::WithoutEffect(warning)) => {
                self.idle(whole(), warning);
                Ok(())
            }
            Err(WordRefusal::NoValue) => Err(OptionError::NoValue(name)),
            Err(WordRefusal::UnwantedValue) => Err(OptionError::UnwantedValue(name)),
            Err(WordRefusal::Unsupported(reason)) => Err(OptionError::Unsupported(name, reason)),
            Err(WordRefusal::BadValue) => Err(OptionError::BadValue {
                name,
                value: String::from_utf8_lossy(value.unwrap_or_default()).into_owned(),
            }),
        }
    }

    /// Adds a word for the kernel's security module.
    fn label(&mut self, name: &str, value: &[u8]) -> Result<(), WordRefusal> {
        let value = String::from_utf8_lossy(value);
        self.security.push(format!("{name}={value}"));
        Ok(())
    }

    /// Returns the options for opening the volume, without its devices.
    pub fn open_options(&self, writable: bool) -> OpenOptions {
        let options = self.volume.clone();
        // The kernel checks permissions on files with ACLs, which `fakeroot` must avoid.
        let options = if self.fakeroot {
            options.acls(false)
        } else {
            options
        };
        options
            .writable(writable)
            .delta_bytes(MOST_DELTA_BYTES)
            .memory_bytes(self.memory_bytes())
            // Unmounting waits for no discard.
            .discard_at_close(Duration::ZERO)
            .rescue(self.rescue)
    }

    /// Returns the memory limit of the mount: the option, or the limit of the machine and the control groups.
    pub fn memory_bytes(&self) -> u64 {
        self.volume.memory_limit().unwrap_or_else(memory_limit)
    }

    /// Returns whether the mount must be read-only. With roots of an earlier transaction it may be writable, as in the
    /// kernel.
    pub(super) fn needs_read_only(&self) -> bool {
        let others = Rescue {
            use_backup_root: false,
            ..self.rescue
        };
        others != Rescue::default()
    }
}

/// The upper limit of a transaction's size. A longer transaction rewrites each tree block less often. The kernel keeps
/// its dirty tree blocks in the page cache, so there the limit grows with the machine. A mount scales likewise, up to
/// this.
const MOST_DELTA_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests;

//! The options that a remount changes in addition to the kernel's flags: storage of data, access times, and rights of
//! users.

use std::ffi::OsStr;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_fs::{AtimePolicy, Volume};

use super::error::MountError;
use super::options::Options;
use crate::adapter::LiveRules;

/// The current options of a mount.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    options: Arc<Mutex<Options>>,
    rules: Arc<LiveRules>,
    /// Only a new mount can set it.
    dirsync: bool,
}

impl LiveOptions {
    pub fn new(options: &Options) -> LiveOptions {
        let live = LiveOptions {
            options: Arc::new(Mutex::new(options.clone())),
            rules: Arc::default(),
            dirsync: options.dirsync,
        };
        live.rule(options);
        live
    }

    /// Applies words of `-o` on top of the earlier ones. An option that only a new mount can set stays as it was.
    ///
    /// # Errors
    /// Unknown words, and errors of `Volume::reconfigure`.
    pub fn change(&self, words: &OsStr, volume: &Volume) -> Result<(), MountError> {
        let mut options = self.options.lock();
        let mut new = options.clone();
        new.add(words)?;
        if volume.is_writable() {
            volume.reconfigure(&new.open_options(true))?;
        }
        self.rule(&new);
        *options = new;
        Ok(())
    }

    /// Returns whether users may delete their own subvolumes.
    pub fn user_subvol_rm_allowed(&self) -> bool {
        self.rules.user_subvol_rm_allowed()
    }

    /// Returns whether each change of a directory is durable when it is answered.
    pub fn dirsync(&self) -> bool {
        self.dirsync
    }

    pub(super) fn rules(&self) -> Arc<LiveRules> {
        Arc::clone(&self.rules)
    }

    fn rule(&self, options: &Options) {
        let of_dirs = if options.no_diratime {
            AtimePolicy::Never
        } else {
            options.atime
        };
        self.rules.set_atime(options.atime, of_dirs);
        self.rules.set_syncs_writes(options.sync);
        self.rules
            .set_user_subvol_rm_allowed(options.user_subvol_rm_allowed);
    }
}

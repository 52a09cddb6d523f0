//! Mount options that a remount can change.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ubtrfs_fs::AtimePolicy;

/// The rules that requests look up.
#[derive(Debug, Default)]
pub(crate) struct LiveRules {
    atime: Policy,
    dir_atime: Policy,
    user_subvol_rm_allowed: AtomicBool,
    syncs_writes: AtomicBool,
}

impl LiveRules {
    /// Sets when a read updates the access time, for all but directories and for directories.
    pub(crate) fn set_atime(&self, files: AtimePolicy, dirs: AtimePolicy) {
        self.atime.set(files);
        self.dir_atime.set(dirs);
    }

    /// Sets whether users may delete their subvolumes.
    pub(crate) fn set_user_subvol_rm_allowed(&self, is_allowed: bool) {
        self.user_subvol_rm_allowed
            .store(is_allowed, Ordering::Relaxed);
    }

    pub(crate) fn user_subvol_rm_allowed(&self) -> bool {
        self.user_subvol_rm_allowed.load(Ordering::Relaxed)
    }

    /// Sets whether each write is durable when it is answered. The kernel ensures that itself, but for copies.
    pub(crate) fn set_syncs_writes(&self, syncs: bool) {
        self.syncs_writes.store(syncs, Ordering::Relaxed);
    }

    pub(super) fn syncs_writes(&self) -> bool {
        self.syncs_writes.load(Ordering::Relaxed)
    }

    pub(super) fn atime(&self) -> AtimePolicy {
        self.atime.get()
    }

    pub(super) fn dir_atime(&self) -> AtimePolicy {
        self.dir_atime.get()
    }
}

/// An `AtimePolicy` that other threads may set.
#[derive(Debug, Default)]
struct Policy(AtomicU8);

impl Policy {
    const RELATIVE: u8 = 0;
    const NEVER: u8 = 1;
    const ALWAYS: u8 = 2;

    fn set(&self, policy: AtimePolicy) {
        let number = match policy {
            AtimePolicy::Relative => Self::RELATIVE,
            AtimePolicy::Never => Self::NEVER,
            AtimePolicy::Always => Self::ALWAYS,
        };
        self.0.store(number, Ordering::Relaxed);
    }

    fn get(&self) -> AtimePolicy {
        match self.0.load(Ordering::Relaxed) {
            Self::NEVER => AtimePolicy::Never,
            Self::ALWAYS => AtimePolicy::Always,
            _ => AtimePolicy::Relative,
        }
    }
}

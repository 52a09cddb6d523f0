//! Superblock changes requested by operations, for the next commit.

use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::superblock::{LABEL_SIZE, Superblock};

use crate::space::DeviceChange;

#[cfg(test)]
mod tests;

#[derive(Clone, Debug, Default)]
pub struct SuperblockEdits {
    pub label: Option<[u8; LABEL_SIZE]>,
    /// Features that the volume uses from now on.
    pub(crate) incompat: u64,
    pub(crate) compat_ro: u64,
    /// The free-space tree is no longer valid, unless `compat_ro` sets the feature again.
    pub(crate) invalidates_free_space_tree: bool,
    /// The v1 caches were deleted.
    pub(crate) drops_v1_cache: bool,
    pub(crate) uuid_tree_made: bool,
    /// The log was replayed. Every commit drops the log; this flag only causes a commit.
    pub log_replayed: bool,
    /// Error counts of devices were reset. Every commit saves changed counts; this flag only causes a commit.
    pub device_errors_changed: bool,
    /// Devices that join, leave or get another size.
    pub(crate) device_changes: Vec<DeviceChange>,
}

impl SuperblockEdits {
    pub fn use_feature(&mut self, feature: Incompat) {
        self.incompat |= feature.bits();
    }

    pub(crate) fn use_compat_ro(&mut self, feature: CompatRo) {
        self.compat_ro |= feature.bits();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.label.is_none()
            && self.incompat == 0
            && self.compat_ro == 0
            && !self.invalidates_free_space_tree
            && !self.drops_v1_cache
            && !self.uuid_tree_made
            && !self.log_replayed
            && !self.device_errors_changed
            && self.device_changes.is_empty()
    }

    /// Applies the edits to a superblock, whose generation is already set to the transid of the commit.
    pub(super) fn apply(&self, sb: &mut Superblock) {
        sb.clear_log();
        if let Some(label) = self.label {
            sb.label = label;
        }
        sb.incompat_flags = (sb.incompat_flags.get() | self.incompat).into();
        if self.invalidates_free_space_tree {
            let rest = sb.compat_ro() - CompatRo::FREE_SPACE_TREE_VALID;
            sb.compat_ro_flags = rest.bits().into();
        }
        sb.compat_ro_flags = (sb.compat_ro_flags.get() | self.compat_ro).into();
        let cached = sb.cache_generation.get();
        if self.drops_v1_cache {
            sb.cache_generation = 0.into();
        } else if cached != 0 && cached >= sb.generation.get() {
            // After a return to older roots, caches of the discarded state would appear current.
            sb.cache_generation = u64::MAX.into();
        }
        if self.uuid_tree_made || sb.uuid_tree_generation.get() != 0 {
            // The kernel scans all subvolumes at mount if the two differ.
            sb.uuid_tree_generation = sb.generation;
        }
    }
}

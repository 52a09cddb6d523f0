//! Users on whose behalf a program acts.

use ubtrfs_fs::rights::{Caller as EngineCaller, Rights};

use crate::handle::Engine;

/// A user on whose behalf a program acts. [`Dir::with_caller`](crate::Dir::with_caller) makes the same checks as the
/// kernel's btrfs for a process of this user in a mount.
///
/// Rights depend on modes, ACLs and owners in the volume. An administrator has all of them.
///
/// ```
/// use std::fs::Permissions;
/// use std::os::unix::fs::PermissionsExt;
/// use ubtrfs::{Caller, DirBuilder, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/shared")?;
/// root.chown("/shared", None, Some(100))?;
/// root.set_permissions("/shared", Permissions::from_mode(0o2775))?;
///
/// let user = Caller::new(1000, 1000).groups([100]);
/// let shared = root.open_dir("/shared")?.with_caller(&user);
/// shared.create_subvolume("project", &DirBuilder::new())?;
/// assert_eq!(root.metadata("/shared/project")?.uid(), 1000);
///
/// let stranger = Caller::new(2000, 2000);
/// let shared = root.open_dir("/shared")?.with_caller(&stranger);
/// let refused = shared.create_subvolume("other", &DirBuilder::new()).unwrap_err();
/// assert!(refused.is_refusal());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    caller: EngineCaller,
    user_subvol_rm_allowed: bool,
}

impl Caller {
    /// Creates a user in one group, with the rights from owners, modes and ACLs only. New directories are created with
    /// the umask 0o022.
    pub fn new(uid: u32, gid: u32) -> Caller {
        Caller::of_engine(EngineCaller::new(uid, gid), false)
    }

    /// Creates the caller of a request to a mount, with the capabilities that its server has read. The flag is whether
    /// the mount lets users delete subvolumes.
    #[doc(hidden)]
    pub fn of_engine(caller: EngineCaller, user_subvol_rm_allowed: bool) -> Caller {
        Caller {
            caller,
            user_subvol_rm_allowed,
        }
    }

    /// Sets the supplementary groups of the user.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = u32>) -> Caller {
        self.caller = self.caller.groups(groups.into_iter().collect());
        self
    }

    /// Sets the permission bits to clear in new directories of the user, like umask(2).
    #[must_use]
    pub fn umask(mut self, umask: u32) -> Caller {
        self.caller = self.caller.umask(umask);
        self
    }

    /// Gives the user all rights of root.
    #[must_use]
    pub fn administrator(mut self) -> Caller {
        self.caller = self.caller.as_superuser();
        self
    }

    /// Lets the user delete subvolumes under the rules for removing directories, like the mount option
    /// `user_subvol_rm_allowed`. Without it, only an administrator may.
    #[must_use]
    pub fn allow_deleting_subvolumes(mut self, allowed: bool) -> Caller {
        self.user_subvol_rm_allowed = allowed;
        self
    }

    pub(crate) fn owner(&self) -> (u32, u32) {
        (self.caller.uid, self.caller.gid)
    }

    pub(crate) fn umask_bits(&self) -> u32 {
        self.caller.umask
    }

    pub(crate) fn rights<'a>(&'a self, engine: &'a Engine) -> Rights<'a> {
        Rights {
            caller: &self.caller,
            volume: engine,
            user_subvol_rm_allowed: self.user_subvol_rm_allowed,
        }
    }
}

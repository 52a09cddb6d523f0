//! Words of `-o` that ask for nothing that is done here.

/// Why a warning is due.
const NO_DEFRAG: &str = "files are not defragmented as they are written";
const NO_BARRIER: &str = "caches of the devices are flushed all the same";
const NO_MAPS: &str = "inode numbers are not reused";

/// Words without a value that change nothing: what is always so, what has no counterpart here, and what
/// is for mount(8). With the reason where somebody may rely on what is not done.
pub(super) const IDLE: &[(&str, Option<&str>)] = &[
    ("autodefrag", Some(NO_DEFRAG)),
    ("barrier", None),
    ("clear_cache", None),
    ("discard", None),
    ("enospc_debug", None),
    ("inode_cache", Some(NO_MAPS)),
    ("nobarrier", Some(NO_BARRIER)),
    ("noautodefrag", None),
    ("nodiscard", None),
    ("noenospc_debug", None),
    ("noinode_cache", None),
    ("nossd", None),
    ("nossd_spread", None),
    ("notreelog", None),
    ("rescan_uuid_tree", None),
    ("skip_balance", None),
    ("ssd", None),
    ("ssd_spread", None),
    ("treelog", None),
    ("_netdev", None),
    ("auto", None),
    ("defaults", None),
    ("iversion", None),
    ("loop", None),
    ("loud", None),
    ("noauto", None),
    ("nofail", None),
    ("nogroup", None),
    ("noiversion", None),
    ("noowner", None),
    ("nouser", None),
    ("nousers", None),
    ("silent", None),
];

/// The same, with a value.
pub(super) const IDLE_WITH_VALUE: &[&str] = &["fatal_errors", "metadata_ratio"];

/// Words that say nothing without a value.
pub(super) const NEEDS_VALUE: &[&str] = &[
    "commit",
    "device",
    "fatal_errors",
    "fsname",
    "log",
    "loglevel",
    "max_inline",
    "metadata_ratio",
    "rescue",
    "subvol",
    "subvolid",
    "thread_pool",
    "threads",
    "transport",
];

const SETTLED: &str = "the mount settles it itself";
const OWNERS: &str = "owners and modes are those on disk";
const MOVES: &str = "it is for a directory, not for an image";

/// Words that are known and refused, with the reason.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    ("bind", MOVES),
    ("rbind", MOVES),
    ("move", MOVES),
    ("allow_root", "use allow_other, or mount as root"),
    (
        "auto_unmount",
        "a mount whose server was killed is left to umount",
    ),
    ("subtype", SETTLED),
    ("fd", SETTLED),
    ("rootmode", SETTLED),
    ("user_id", SETTLED),
    ("group_id", SETTLED),
    ("max_read", SETTLED),
    ("blksize", SETTLED),
    ("uid", OWNERS),
    ("gid", OWNERS),
    ("umask", OWNERS),
    ("nospace_cache", super::volume::ONLY_V2),
];

/// Words by which the kernel describes every mount of ours.
pub(in crate::mount) fn is_settled(name: &str) -> bool {
    UNSUPPORTED
        .iter()
        .any(|(word, reason)| *word == name && *reason == SETTLED)
        || matches!(name, "default_permissions" | "relatime" | "defaults")
}

/// Words that fstab(5) leaves to other programs.
pub(super) fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}

//! Words of `-o` that are ignored, refused, or limited in their use.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The reason for a warning.
const NO_DEFRAG: &str = "files are not defragmented as they are written";
const NO_BARRIER: &str = "caches of the devices are flushed all the same";
const NO_MAPS: &str = "inode numbers are not reused";
const NO_RESCAN: &str = "the UUID tree is kept, and not scanned";
const NO_MAND: &str = "Linux has no mandatory locks any more";

/// Words without a value and without effect: defaults that cannot be changed, options without a counterpart here, and
/// options for mount(8). A reason is given if a user may rely on the missing effect.
pub(super) const IDLE: &[(&str, Option<&str>)] = &[
    ("autodefrag", Some(NO_DEFRAG)),
    ("barrier", None),
    ("enospc_debug", None),
    ("inode_cache", Some(NO_MAPS)),
    ("nobarrier", Some(NO_BARRIER)),
    ("noautodefrag", None),
    ("noenospc_debug", None),
    ("noinode_cache", None),
    ("nossd", None),
    ("nossd_spread", None),
    ("rescan_uuid_tree", Some(NO_RESCAN)),
    ("skip_balance", None),
    ("ssd", None),
    ("ssd_spread", None),
    ("_netdev", None),
    ("auto", None),
    ("defaults", None),
    ("iversion", None),
    ("loud", None),
    ("mand", Some(NO_MAND)),
    ("noauto", None),
    ("nofail", None),
    ("nogroup", None),
    ("noiversion", None),
    ("nomand", None),
    ("noowner", None),
    ("nouser", None),
    ("nousers", None),
    ("silent", None),
];

/// Words with a value and without effect.
pub(super) const IDLE_WITH_VALUE: &[&str] = &["fatal_errors", "metadata_ratio"];

/// Words with a value for the kernel's security module (SELinux).
pub(super) const SECURITY: &[&str] = &["context", "defcontext", "fscontext", "rootcontext"];

/// Words that a remount accepts in addition to the kernel's flags.
const LIVE: &[&str] = &[
    "commit",
    "compress",
    "compress-force",
    "datacow",
    "datasum",
    "discard",
    "flushoncommit",
    "max_inline",
    "nodatacow",
    "nodatasum",
    "nodiscard",
    "noflushoncommit",
    "nouser_subvol_rm_allowed",
    "user_subvol_rm_allowed",
];

/// Words that require a value.
pub(super) const NEEDS_VALUE: &[&str] = &[
    "commit",
    "context",
    "defcontext",
    "device",
    "fatal_errors",
    "fscontext",
    "fsname",
    "log",
    "loglevel",
    "max_inline",
    "memory",
    "metadata_ratio",
    "rescue",
    "rootcontext",
    "subvol",
    "subvolid",
    "thread_pool",
    "threads",
    "transport",
];

/// The kernel also refuses them for a volume with the tree.
const ONLY_V2: &str =
    "no cache of free space is written but the tree of space_cache=v2, where a volume has it";
const SET_BY_MOUNT: &str = "the mount sets it itself";
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
    ("subtype", SET_BY_MOUNT),
    ("fd", SET_BY_MOUNT),
    ("rootmode", SET_BY_MOUNT),
    ("user_id", SET_BY_MOUNT),
    ("group_id", SET_BY_MOUNT),
    ("max_read", SET_BY_MOUNT),
    ("blksize", SET_BY_MOUNT),
    ("uid", OWNERS),
    ("gid", OWNERS),
    ("umask", OWNERS),
    ("space_cache", ONLY_V2),
    ("nospace_cache", ONLY_V2),
];

/// Returns whether the kernel's description of every mount of ours has this word.
pub(in crate::mount) fn is_set_by_mount(name: &str) -> bool {
    UNSUPPORTED
        .iter()
        .any(|(word, reason)| *word == name && *reason == SET_BY_MOUNT)
        || matches!(name, "default_permissions" | "defaults")
}

/// Returns whether a remount accepts the word in addition to the kernel's flags.
pub(in crate::mount) fn is_live(name: &str) -> bool {
    LIVE.contains(&name)
}

/// Splits the words of one `-o`. A comma between double quotes is part of a word, as in SELinux contexts.
pub(in crate::mount) fn split(words: &OsStr) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let words = words.as_bytes().split(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    });
    words.filter(|word| !word.is_empty())
}

/// Returns whether fstab(5) reserves the word for other programs.
pub(super) fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}

//! The table of the words of `-o` that are not options of a volume.
//!
//! A word is one row: name, value, setter, and whether a remount changes it. Options of a volume have their words in
//! their own table (`ubtrfs_fs::OPEN_OPTIONS`); [`Known`] finds a word in either.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;

use rustix::mount::MountFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::WordRefusal::BadValue;
use ubtrfs_fs::{
    AtimePolicy, MountWord, ONLY_SPACE_CACHE_V2, OpenOptions, Rescue, WordGroup, WordOutcome,
    WordRefusal, WordRemount, volume_words, word_number, word_text,
};
use ubtrfs_fuse_server::TransportChoice;

use super::{BlockMount, Options};

type Word = MountWord<Options>;

/// Options of `mount -t btrfs` that are not for the volume as a whole, or are for damaged volumes.
const BTRFS: &[Word] = &[
    flag("ro", |options| options.read_only = Some(true)).remount(set(MountFlags::RDONLY)),
    flag("rw", |options| options.read_only = Some(false)).remount(unset(MountFlags::RDONLY)),
    value("subvol", "PATH", |options, path| {
        options.subvol = Some(not_empty(path)?.into());
        Ok(())
    })
    .remount(WordRemount::Ignored),
    value("subvolid", "ID", set_subvolid).remount(WordRemount::Ignored),
    value("device", "DEVICE", |options, path| {
        options
            .devices
            .push(OsStr::from_bytes(not_empty(path)?).into());
        Ok(())
    }),
    value("rescue", "MODE[:MODE...]", set_rescue).values(&[
        "all",
        "ibadroots",
        "idatacsums",
        "iitemflags",
        "imetacsums",
        "isuperflags",
        "nologreplay",
        "usebackuproot",
    ]),
    flag("usebackuproot", |options| {
        options.rescue.use_backup_root = true
    }),
    flag("recovery", |options| options.rescue.use_backup_root = true).hidden(),
    flag("nologreplay", |options| options.rescue.no_log_replay = true),
    flag("norecovery", |options| options.rescue.no_log_replay = true).hidden(),
    flag("user_subvol_rm_allowed", |options| {
        options.user_subvol_rm_allowed = true
    })
    .live(),
    flag("nouser_subvol_rm_allowed", |options| {
        options.user_subvol_rm_allowed = false
    })
    .live()
    .opposite(),
    value("thread_pool", "N", set_threads).hidden(),
];

/// Options of mount(8), which it has for any file system.
const SYSTEM: &[Word] = &in_group(
    WordGroup::System,
    [
        flag("sync", |options| options.sync = true).remount(set(MountFlags::SYNCHRONOUS)),
        flag("async", |options| options.sync = false)
            .remount(unset(MountFlags::SYNCHRONOUS))
            .hidden(),
        flag("dirsync", |options| options.dirsync = true),
        flag("noexec", |options| options.no_exec = true).remount(set(MountFlags::NOEXEC)),
        flag("exec", |options| options.no_exec = false)
            .remount(unset(MountFlags::NOEXEC))
            .hidden(),
        flag("nosymfollow", |options| options.no_symfollow = true)
            .remount(set(MountFlags::NOSYMFOLLOW)),
        flag("symfollow", |options| options.no_symfollow = false)
            .remount(unset(MountFlags::NOSYMFOLLOW))
            .hidden(),
        flag("noatime", |options| options.atime = AtimePolicy::Never)
            .remount(atime(MountFlags::NOATIME)),
        flag("relatime", |options| options.atime = AtimePolicy::Relative)
            .remount(atime(MountFlags::RELATIME)),
        flag("atime", |options| options.atime = AtimePolicy::Relative)
            .remount(atime(MountFlags::RELATIME))
            .hidden(),
        flag("nostrictatime", |options| {
            options.atime = AtimePolicy::Relative
        })
        .remount(atime(MountFlags::RELATIME))
        .hidden(),
        flag("nodiratime", |options| options.no_diratime = true)
            .remount(set(MountFlags::NODIRATIME)),
        flag("diratime", |options| options.no_diratime = false)
            .remount(unset(MountFlags::NODIRATIME))
            .hidden(),
        flag("strictatime", |options| options.atime = AtimePolicy::Always)
            .remount(atime(MountFlags::STRICTATIME)),
        flag("norelatime", |options| options.atime = AtimePolicy::Always)
            .remount(atime(MountFlags::STRICTATIME))
            .hidden(),
        flag("nosuid", |options| options.suid = Some(false)).remount(set(MountFlags::NOSUID)),
        flag("suid", |options| options.suid = Some(true))
            .remount(unset(MountFlags::NOSUID))
            .hidden(),
        flag("nodev", |options| options.dev = Some(false)).remount(set(MountFlags::NODEV)),
        flag("dev", |options| options.dev = Some(true))
            .remount(unset(MountFlags::NODEV))
            .hidden(),
        flag("user", set_user).hidden(),
        flag("users", set_user).hidden(),
        flag("owner", set_owner).hidden(),
        flag("group", set_owner).hidden(),
        // For the kernel's security module (SELinux).
        value("context", "", |options, value| {
            options.label("context", value)
        })
        .hidden(),
        value("defcontext", "", |options, value| {
            options.label("defcontext", value)
        })
        .hidden(),
        value("fscontext", "", |options, value| {
            options.label("fscontext", value)
        })
        .hidden(),
        value("rootcontext", "", |options, value| {
            options.label("rootcontext", value)
        })
        .hidden(),
    ],
);

const FUSE: &[Word] = &in_group(
    WordGroup::Fuse,
    [
        flag("allow_other", |options| options.allow_other = Some(true)),
        value("fsname", "NAME", |options, name| {
            options.fsname = Some(name.into());
            Ok(())
        }),
        value("threads", "N", set_threads),
        flag("blkdev", |options| options.block_mount = BlockMount::Always),
        flag("noblkdev", |options| {
            options.block_mount = BlockMount::Never
        }),
        flag("default_permissions", |options| options.fakeroot = false)
            .remount(WordRemount::Repeated),
        flag("fakeroot", |options| options.fakeroot = true),
        MountWord::optional_value("subtype", "", |_, subtype| match subtype {
            Some(b"ubtrfs") => Ok(()),
            _ => Err(WordRefusal::Unsupported(SET_BY_MOUNT)),
        })
        .remount(WordRemount::Repeated)
        .hidden(),
    ],
);

const OURS: &[Word] = &in_group(
    WordGroup::Ours,
    [
        flag("loop", |options| options.loop_mount = Some(true)),
        flag("noloop", |options| options.loop_mount = Some(false)),
        value("transport", "auto|uring|classic", set_transport)
            .values(&["auto", "classic", "uring"]),
        flag("writeback", |options| options.writeback = true),
        flag("nowriteback", |options| options.writeback = false).hidden(),
        flag("opens", |options| options.opens = true),
        flag("noopens", |options| options.opens = false).hidden(),
        value("log", "FILE|syslog|stderr", |options, place| {
            options.log = Some(not_empty(place)?.into());
            Ok(())
        })
        .values(&["", "stderr", "syslog"]),
        value("loglevel", "LEVEL", |options, level| {
            options.log_level = Some(word_text(level)?.into());
            Ok(())
        }),
    ],
);

/// Defaults that cannot be changed, options without a counterpart here, and options for mount(8).
const WITHOUT_EFFECT: &[Word] = &[
    MountWord::without_effect(
        "autodefrag",
        Some("files are not defragmented as they are written"),
    ),
    MountWord::without_effect("enospc_debug", None),
    MountWord::value_without_effect("fatal_errors"),
    MountWord::without_effect("inode_cache", Some("inode numbers are not reused")),
    MountWord::value_without_effect("metadata_ratio"),
    MountWord::without_effect("noautodefrag", None),
    MountWord::without_effect("noenospc_debug", None),
    MountWord::without_effect("noinode_cache", None),
    MountWord::without_effect("nossd", None),
    MountWord::without_effect("nossd_spread", None),
    MountWord::without_effect(
        "rescan_uuid_tree",
        Some("the UUID tree is kept, and not scanned"),
    ),
    MountWord::without_effect("skip_balance", None),
    MountWord::without_effect("ssd", None),
    MountWord::without_effect("ssd_spread", None),
    MountWord::without_effect("_netdev", None),
    MountWord::without_effect("auto", None),
    MountWord::without_effect("defaults", None).remount(WordRemount::Repeated),
    MountWord::without_effect("iversion", None),
    MountWord::without_effect("loud", None),
    MountWord::without_effect("mand", Some("Linux no longer has mandatory locks")),
    MountWord::without_effect("noauto", None),
    MountWord::without_effect("nofail", None),
    MountWord::without_effect("nogroup", None),
    MountWord::without_effect("noiversion", None),
    MountWord::without_effect("nomand", None),
    MountWord::without_effect("noowner", None),
    MountWord::without_effect("nouser", None),
    MountWord::without_effect("nousers", None),
    MountWord::without_effect("silent", None),
];

const UNSUPPORTED: &[Word] = &[
    MountWord::unsupported("bind", FOR_DIRECTORIES),
    MountWord::unsupported("rbind", FOR_DIRECTORIES),
    MountWord::unsupported("move", FOR_DIRECTORIES),
    MountWord::unsupported("allow_root", "use allow_other, or mount as root"),
    MountWord::unsupported(
        "auto_unmount",
        "a mount whose server was killed is left to umount",
    ),
    MountWord::unsupported("fd", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("rootmode", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("user_id", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("group_id", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("max_read", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("blksize", SET_BY_MOUNT).remount(WordRemount::Repeated),
    MountWord::unsupported("uid", OWNERS_ON_DISK),
    MountWord::unsupported("gid", OWNERS_ON_DISK),
    MountWord::unsupported("umask", OWNERS_ON_DISK),
    MountWord::unsupported("nospace_cache", ONLY_SPACE_CACHE_V2),
];

pub(super) const TABLES: [&[Word]; 6] = [BTRFS, SYSTEM, FUSE, OURS, WITHOUT_EFFECT, UNSUPPORTED];

const SET_BY_MOUNT: &str = "the mount sets it itself";
const OWNERS_ON_DISK: &str = "owners and modes are those on disk";
const FOR_DIRECTORIES: &str = "it is for a directory, not for an image";

const MOST_THREADS: usize = 1024;

const fn flag(name: &'static str, set: fn(&mut Options)) -> Word {
    MountWord::flag(name, set)
}

const fn value(
    name: &'static str,
    placeholder: &'static str,
    set: fn(&mut Options, &[u8]) -> Result<(), WordRefusal>,
) -> Word {
    MountWord::value(name, placeholder, set)
}

const fn set(flag: MountFlags) -> WordRemount {
    WordRemount::Flags {
        decided: flag,
        set: flag,
    }
}

const fn unset(flag: MountFlags) -> WordRemount {
    WordRemount::Flags {
        decided: flag,
        set: MountFlags::empty(),
    }
}

const fn atime(set: MountFlags) -> WordRemount {
    WordRemount::Flags {
        decided: ATIME,
        set,
    }
}

/// The flags for access times. A word sets one and clears the others.
pub(in crate::mount) const ATIME: MountFlags = MountFlags::NOATIME
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME);

const fn in_group<const N: usize>(group: WordGroup, mut words: [Word; N]) -> [Word; N] {
    let mut at = 0;
    while at < N {
        words[at].group = group;
        at += 1;
    }
    words
}

fn not_empty(value: &[u8]) -> Result<&[u8], WordRefusal> {
    if value.is_empty() {
        return Err(BadValue);
    }
    Ok(value)
}

/// Sets the id of the subvolume; 0 is the top level, as in the kernel.
fn set_subvolid(options: &mut Options, value: &[u8]) -> Result<(), WordRefusal> {
    options.subvolid = Some(match word_number(value)? {
        0 => RootId::FS_TREE,
        id => RootId(id),
    });
    Ok(())
}

fn set_threads(options: &mut Options, value: &[u8]) -> Result<(), WordRefusal> {
    let threads = word_number(value)?;
    let threads = usize::try_from(threads)
        .ok()
        .filter(|&threads| threads <= MOST_THREADS);
    options.threads = Some(threads.and_then(NonZeroUsize::new).ok_or(BadValue)?);
    Ok(())
}

fn set_transport(options: &mut Options, value: &[u8]) -> Result<(), WordRefusal> {
    options.transport = match value {
        b"auto" => TransportChoice::Auto,
        b"uring" => TransportChoice::Uring,
        b"classic" => TransportChoice::Classic,
        _ => return Err(BadValue),
    };
    Ok(())
}

/// Distrusts a volume that a user may mount, as mount(8) does.
fn set_owner(options: &mut Options) {
    options.suid = Some(false);
    options.dev = Some(false);
}

fn set_user(options: &mut Options) {
    set_owner(options);
    options.no_exec = true;
}

fn set_rescue(options: &mut Options, modes: &[u8]) -> Result<(), WordRefusal> {
    for mode in word_text(modes)?.split(':') {
        add_rescue(&mut options.rescue, mode)?;
    }
    Ok(())
}

fn add_rescue(rescue: &mut Rescue, mode: &str) -> Result<(), WordRefusal> {
    match mode {
        "usebackuproot" => rescue.use_backup_root = true,
        "nologreplay" => rescue.no_log_replay = true,
        "ignorebadroots" | "ibadroots" => rescue.ignore_bad_roots = true,
        "ignoredatacsums" | "idatacsums" => rescue.ignore_data_csums = true,
        "ignoremetacsums" | "imetacsums" => rescue.ignore_meta_csums = true,
        "ignoresuperflags" | "isuperflags" => rescue.ignore_super_flags = true,
        "ignoreitemflags" | "iitemflags" => rescue.ignore_item_flags = true,
        // "all" sets every option that makes more of the volume readable, as in the kernel.
        "all" => {
            rescue.no_log_replay = true;
            rescue.ignore_bad_roots = true;
            rescue.ignore_data_csums = true;
            rescue.ignore_meta_csums = true;
            rescue.ignore_super_flags = true;
            rescue.ignore_item_flags = true;
        }
        _ => return Err(BadValue),
    }
    Ok(())
}

/// A word of either table.
#[derive(Clone, Copy)]
pub(in crate::mount) enum Known {
    Volume(&'static MountWord<OpenOptions>),
    Mount(&'static Word),
}

impl Known {
    pub(in crate::mount) fn find(name: &str) -> Option<Known> {
        let mut of_mounts = TABLES.iter().copied().flatten();
        let of_mount = of_mounts.find(|word| word.name == name);
        let of_volume = || volume_words().find(|word| word.name == name);
        of_mount
            .map(Known::Mount)
            .or_else(|| of_volume().map(Known::Volume))
    }

    pub(in crate::mount) fn remount(self) -> WordRemount {
        match self {
            Known::Volume(word) => word.remount,
            Known::Mount(word) => word.remount,
        }
    }

    pub(super) fn apply(
        self,
        options: &mut Options,
        value: Option<&[u8]>,
    ) -> Result<WordOutcome, WordRefusal> {
        match self {
            Known::Volume(word) => word.apply(&mut options.volume, value),
            Known::Mount(word) => word.apply(options, value),
        }
    }
}

/// Returns the words of a group with their values, as help texts show them: either those that restore a default, or the
/// others.
pub fn words_for_help(group: WordGroup, opposites: bool) -> Vec<String> {
    fn usages<T: 'static>(
        words: impl Iterator<Item = &'static MountWord<T>>,
        group: WordGroup,
        opposites: bool,
    ) -> impl Iterator<Item = String> {
        let is_listed = move |word: &&MountWord<T>| {
            !word.is_hidden && word.group == group && word.is_opposite == opposites
        };
        words.filter(is_listed).map(MountWord::usage)
    }
    let of_mounts = usages(TABLES.iter().copied().flatten(), group, opposites);
    of_mounts
        .chain(usages(volume_words(), group, opposites))
        .collect()
}

/// Returns the words to complete after `-o`, sorted. The user continues after a final `=`.
pub fn words_to_complete() -> Vec<String> {
    let of_mounts = TABLES
        .iter()
        .copied()
        .flatten()
        .filter(|word| !word.is_hidden);
    let of_volumes = volume_words().filter(|word| !word.is_hidden);
    let mut words: Vec<String> = of_mounts.flat_map(MountWord::completions).collect();
    words.extend(of_volumes.flat_map(MountWord::completions));
    words.sort();
    words
}

/// Returns the words that a remount changes, sorted, without those that restore a default.
pub fn words_of_remounts() -> Vec<&'static str> {
    fn names<T: 'static>(
        words: impl Iterator<Item = &'static MountWord<T>>,
    ) -> impl Iterator<Item = &'static str> {
        let changes = |remount: &WordRemount| {
            matches!(remount, WordRemount::Live | WordRemount::Flags { .. })
        };
        let is_listed = move |word: &&MountWord<T>| {
            !word.is_hidden && !word.is_opposite && changes(&word.remount)
        };
        words.filter(is_listed).map(|word| word.name)
    }
    let of_mounts = names(TABLES.iter().copied().flatten());
    let mut words: Vec<_> = of_mounts.chain(names(volume_words())).collect();
    words.sort_unstable();
    words
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

/// Splits a word into its name and its value.
pub(in crate::mount) fn name_and_value(word: &[u8]) -> (String, Option<&[u8]>) {
    let mut parts = word.splitn(2, |&byte| byte == b'=');
    let name = String::from_utf8_lossy(parts.next().unwrap_or_default());
    (name.into_owned(), parts.next())
}

/// Returns whether fstab(5) reserves the word for other programs.
pub(super) fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || name == "comment"
}

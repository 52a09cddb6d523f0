//! `mount -o remount`: changing the options of an existing mount.
//!
//! The kernel stores flags and acts on them without notifying the process that serves the mount. So the options that
//! this process implements (storage of data, access times) are sent to it (`Remounted`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, getxattr, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use ubtrfs_fs::WordRemount;

use super::detach::{find, resolve};
use super::error::{MountError, UnmountError};
use super::holders::is_of_dead_server;
use super::options::{ATIME, Known, OptionError, Options, WithoutEffect, name_and_value, split};
use crate::adapter::{TAKES_CHANGES, WRITABLE_ATTRIBUTE};
use crate::mount_table::{has, mount_table};

/// The flag of statfs(2) that rustix does not define.
const ST_NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);
const NEEDS_A_NEW_MOUNT: &str = "only a new mount takes it";

/// Flags that the serving process also implements, with their words.
const SHARED_FLAGS: [(MountFlags, &str, &str); 3] = [
    (MountFlags::LAZYTIME, "lazytime", "nolazytime"),
    (MountFlags::NODIRATIME, "nodiratime", "diratime"),
    (MountFlags::SYNCHRONOUS, "sync", "async"),
];

/// Flags that mount(8) passes whenever they are to be set: a missing word clears them.
const PASSED_IF_SET: [MountFlags; 7] = [
    MountFlags::SYNCHRONOUS,
    MountFlags::NOSUID,
    MountFlags::NODEV,
    MountFlags::NOEXEC,
    MountFlags::NODIRATIME,
    MountFlags::NOSYMFOLLOW,
    MountFlags::LAZYTIME,
];

/// The options of a `-o` that contains `remount`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remount {
    /// Later changes override earlier ones.
    changes: Vec<FlagChange>,
    /// Words for the process that serves the mount.
    live: Vec<u8>,
    /// The words without effect.
    without_effect: Vec<WithoutEffect>,
    /// Whether an option requires a read-only mount.
    needs_read_only: bool,
}

/// The flags that a word changes, and the subset that it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlagChange {
    decided: MountFlags,
    set: MountFlags,
}

impl FlagChange {
    const fn of(flag: MountFlags, is_set: bool) -> FlagChange {
        FlagChange {
            decided: flag,
            set: if is_set { flag } else { MountFlags::empty() },
        }
    }
}

/// The result of a remount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remounted {
    pub mountpoint: PathBuf,
    /// Words of `-o` for the process that serves the mount (`LiveOptions::change`).
    pub live: OsString,
    /// The words without effect that the mount did not have before.
    pub without_effect: Vec<WithoutEffect>,
}

impl Remount {
    /// Returns whether a `-o` contains `remount`.
    pub fn is_asked_by(words: &OsStr) -> bool {
        split(words).any(|word| word == b"remount")
    }

    /// Adds the words of one `-o`.
    ///
    /// # Errors
    /// Unknown words.
    pub fn add(&mut self, words: &OsStr) -> Result<(), OptionError> {
        for word in split(words).filter(|&word| word != b"remount") {
            let (name, value) = name_and_value(word);
            let remount = Known::find(&name).map(Known::remount);
            match remount {
                Some(WordRemount::Flags { decided, set }) if value.is_none() => {
                    self.changes.push(FlagChange { decided, set });
                    continue;
                }
                Some(WordRemount::Repeated) => continue,
                _ => {}
            }
            // mount(8) adds the words that it remembers of the mount, which change nothing.
            let mut known = Options::default();
            known.add(OsStr::from_bytes(word))?;
            self.needs_read_only |= known.needs_read_only();
            match remount {
                // Words from fstab are passed as well, and the kernel's btrfs keeps the mounted subvolume regardless.
                Some(WordRemount::Ignored) => {}
                Some(WordRemount::Live) => add_word(&mut self.live, word),
                _ if !known.without_effect.is_empty() => {
                    self.without_effect.append(&mut known.without_effect);
                }
                _ if known != Options::default() => self.without_effect.push(WithoutEffect {
                    word: String::from_utf8_lossy(word).into_owned(),
                    warning: Some(NEEDS_A_NEW_MOUNT),
                }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Applies the flags to the mount at a path.
    ///
    /// # Errors
    /// There is no mount of ours, the kernel refuses, or the words require a read-only mount. Or the words require a
    /// writable mount, and the volume was opened read-only.
    pub fn apply(&self, path: &Path) -> Result<Remounted, MountError> {
        let place = resolve(path)?;
        let table = mount_table().map_err(UnmountError::Table)?;
        let entry = match find(&table, &place) {
            Some(entry) if entry.is_ours() => entry,
            Some(entry) => {
                return Err(MountError::Unmount(UnmountError::NotOurs {
                    path: path.into(),
                    fs_type: entry.fs_type.clone(),
                }));
            }
            None => return Err(MountError::Unmount(UnmountError::NotMounted(path.into()))),
        };
        let mountpoint = entry.mountpoint.clone();
        let failed = |error: Errno| match error {
            error if is_of_dead_server(error) => MountError::NotServed(mountpoint.clone()),
            error => MountError::Mount {
                mountpoint: mountpoint.clone(),
                error: error.into(),
            },
        };
        let mut before = flags_of(statvfs(&entry.mountpoint).map_err(failed)?.f_flag);
        before.set(MountFlags::LAZYTIME, has(&entry.options, "lazytime"));
        let mut flags = before;
        for change in &self.changes {
            flags = (flags - change.decided) | change.set;
        }
        if self.needs_read_only && !flags.contains(MountFlags::RDONLY) {
            return Err(OptionError::NeedsReadOnly("rescue").into());
        }
        let is_opened = before.contains(MountFlags::RDONLY) && !flags.contains(MountFlags::RDONLY);
        if is_opened && !takes_changes(&entry.mountpoint) {
            return Err(MountError::OpenedForReading(entry.mountpoint.clone()));
        }
        // A user may not remount, but the options of the serving process do not need the kernel.
        if flags != before || self.live.is_empty() {
            mount_remount(&entry.mountpoint, flags, "").map_err(failed)?;
        }
        let is_so = |idle: &&WithoutEffect| has(&entry.options, &idle.word);
        let without_effect = self.without_effect.iter().filter(|idle| !is_so(idle));
        Ok(Remounted {
            mountpoint: entry.mountpoint.clone(),
            live: OsString::from_vec(self.live_words(before, flags)),
            without_effect: without_effect.cloned().collect(),
        })
    }

    /// Returns the words for the serving process, including words for the changed flags.
    fn live_words(&self, before: MountFlags, after: MountFlags) -> Vec<u8> {
        let mut words = self.live.clone();
        for (flag, set, unset) in SHARED_FLAGS {
            if (before ^ after).contains(flag) {
                let word = if after.contains(flag) { set } else { unset };
                add_word(&mut words, word.as_bytes());
            }
        }
        if before & ATIME != after & ATIME {
            let word = match after & ATIME {
                MountFlags::NOATIME => "noatime",
                MountFlags::STRICTATIME => "strictatime",
                _ => "relatime",
            };
            add_word(&mut words, word.as_bytes());
        }
        words
    }

    /// Returns whether the mount is read-only afterwards.
    pub fn is_read_only(&self) -> bool {
        self.change(MountFlags::RDONLY) == Some(true)
    }

    /// Clears the flags of `PASSED_IF_SET` that the words do not name. For words from mount(8), which names all flags
    /// that are to be set.
    pub fn complete(&mut self) {
        for flag in PASSED_IF_SET {
            if self.change(flag).is_none() {
                self.changes.push(FlagChange::of(flag, false));
            }
        }
    }

    fn change(&self, wanted: MountFlags) -> Option<bool> {
        let mut changes = self.changes.iter().rev();
        let last = changes.find(|change| change.decided == wanted);
        last.map(|change| !change.set.is_empty())
    }
}

/// Returns whether the volume behind a mount can be changed, as reported by the serving process. Without a report, the
/// remount is tried.
fn takes_changes(mountpoint: &Path) -> bool {
    let mut value = [0; TAKES_CHANGES.len()];
    match getxattr(mountpoint, WRITABLE_ATTRIBUTE, &mut value) {
        Ok(len) => value[..len] == *TAKES_CHANGES,
        Err(_) => true,
    }
}

fn add_word(words: &mut Vec<u8>, word: &[u8]) {
    if !words.is_empty() {
        words.push(b',');
    }
    words.extend_from_slice(word);
}

/// Returns the flags that a remount must repeat to keep them.
fn flags_of(shown: StatVfsMountFlags) -> MountFlags {
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (ST_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let shown = pairs.into_iter().filter(|(seen, _)| shown.contains(*seen));
    let mut flags: MountFlags = shown.map(|(_, flag)| flag).collect();
    // Without any word on access times the kernel sets relatime.
    if !flags.intersects(ATIME) {
        flags |= MountFlags::STRICTATIME;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Remount, OptionError> {
        let mut remount = Remount::default();
        remount.add(OsStr::new(words))?;
        Ok(remount)
    }

    #[test]
    fn a_remount_is_known_by_its_word() {
        assert!(Remount::is_asked_by(OsStr::new("rw,remount")));
        assert!(!Remount::is_asked_by(OsStr::new("ro,x-remount,remounted")));
    }

    #[test]
    fn the_last_word_counts() {
        assert!(parse("remount,rw,ro").unwrap().is_read_only());
        assert!(!parse("remount,ro,rw").unwrap().is_read_only());
        assert!(!parse("remount,nosuid").unwrap().is_read_only());
    }

    #[test]
    fn lazytime_is_as_said_last_and_as_mount_does_not_say_it() {
        let lazy = |remount: &Remount| remount.change(MountFlags::LAZYTIME);
        let mut silent = parse("remount,ro").unwrap();
        assert_eq!(lazy(&silent), None);
        silent.complete();
        assert_eq!(lazy(&silent), Some(false));
        let mut said = parse("remount,lazytime").unwrap();
        said.complete();
        assert_eq!(lazy(&said), Some(true));
        let last = parse("remount,lazytime,nolazytime").unwrap();
        assert_eq!(lazy(&last), Some(false));
        assert!(last.without_effect.is_empty());
    }

    #[test]
    fn options_that_mount_leaves_out_are_not_to_be() {
        let mut said = parse("rw,nosuid,noexec,relatime,remount,user_id=0").unwrap();
        said.complete();
        for flag in PASSED_IF_SET {
            let is_said = matches!(flag, MountFlags::NOSUID | MountFlags::NOEXEC);
            assert_eq!(said.change(flag), Some(is_said), "{flag:?}");
        }
    }

    #[test]
    fn options_that_mount_remembers_ask_for_nothing() {
        let said =
            "remount,ro,nosuid,nodev,relatime,user_id=0,group_id=0,allow_other,default_permissions";
        let remount = parse(said).unwrap();
        assert_eq!(remount.changes.len(), 4);
        let idle = remount.without_effect.iter().map(|idle| &idle.word);
        assert_eq!(idle.collect::<Vec<_>>(), [&"allow_other"]);
    }

    #[test]
    fn subvolume_of_fstab_is_passed_over_in_silence() {
        for words in ["remount,noatime,subvolid=5", "remount,noatime,subvol=/@"] {
            let remount = parse(words).unwrap();
            assert_eq!(remount.without_effect, [], "{words}");
            assert_eq!(remount.changes.len(), 1, "{words}");
        }
        assert!(parse("remount,subvolid=five").is_err());
    }

    #[test]
    fn options_that_need_a_new_mount_are_named() {
        let remount = parse("remount,noacl,device=/dev/b").unwrap();
        let warned = remount.without_effect.iter();
        assert_eq!(
            warned.filter(|idle| idle.warning.is_some()).count(),
            2,
            "{remount:?}"
        );
        assert!(remount.changes.is_empty() && remount.live.is_empty());
        assert_eq!(
            parse("remount,bogus"),
            Err(OptionError::Unknown("bogus".into()))
        );
    }

    #[test]
    fn the_process_that_serves_is_told_what_changes() {
        let relatime = MountFlags::RELATIME;
        let live_words = |words: &str, after| {
            let remount = parse(words).unwrap();
            assert!(remount.without_effect.is_empty(), "{words}");
            String::from_utf8(remount.live_words(relatime, after)).unwrap()
        };
        assert_eq!(live_words("remount,rw,relatime", relatime), "");
        assert_eq!(
            live_words("remount,compress=zstd:3,commit=5,nodiscard", relatime),
            "compress=zstd:3,commit=5,nodiscard"
        );
        let after = MountFlags::NOATIME | MountFlags::LAZYTIME;
        assert_eq!(
            live_words("remount,noatime,lazytime", after),
            "lazytime,noatime"
        );
        let after = relatime | MountFlags::SYNCHRONOUS;
        assert_eq!(live_words("remount,sync", after), "sync");
        let after = MountFlags::STRICTATIME | MountFlags::NODIRATIME;
        let words = "remount,max_inline=0,strictatime,nodiratime";
        assert_eq!(
            live_words(words, after),
            "max_inline=0,nodiratime,strictatime"
        );
    }

    #[test]
    fn the_last_word_on_access_times_counts_alone() {
        let remount = parse("remount,noatime,strictatime,relatime").unwrap();
        assert_eq!(
            remount.changes.last(),
            Some(&FlagChange {
                decided: ATIME,
                set: MountFlags::RELATIME
            })
        );
    }
}

//! `mount -o remount`: other flags for a mount that is there.
//!
//! The kernel keeps the flags and acts on them; the process that serves the mount is not asked. What that decides by
//! itself (compression, when access times change) stays as it was; only of `lazytime` it is to be told (`Remounted`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, removexattr, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use super::detach::{find, resolve};
use super::error::{MountError, UnmountError};
use super::options::{OptionError, Options, WithoutEffect, is_settled};
use super::table::mount_table;

/// Nobody has it, so that taking it away changes nothing.
const NO_ATTRIBUTE: &str = "user.ubtrfs.no-such-attribute";
const NEEDS_A_NEW_MOUNT: &str = "only a new mount takes it";

/// What the words of `-o` ask for beside `remount`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remount {
    /// Later ones count.
    changes: Vec<(MountFlags, bool)>,
    /// What stays as it was.
    pub without_effect: Vec<WithoutEffect>,
}

/// A mount that has its new flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remounted {
    pub mountpoint: PathBuf,
    /// What the process that serves it is to be told of `lazytime`.
    pub lazy_times: Option<bool>,
}

impl Remount {
    /// Whether a word of `-o` asks for one.
    pub fn is_asked_by(words: &OsStr) -> bool {
        split(words).any(|word| word == b"remount")
    }

    /// Takes the words of one `-o` in.
    ///
    /// # Errors
    /// Words that no mount knows.
    pub fn add(&mut self, words: &OsStr) -> Result<(), OptionError> {
        for word in split(words).filter(|&word| word != b"remount") {
            let text = String::from_utf8_lossy(word);
            let name = text.split('=').next().unwrap_or_default();
            if let Some(change) = change_of(&text) {
                self.changes.push(change);
            } else if !is_settled(name) {
                // What mount(8) remembers of the mount is said along, and asks for nothing new.
                let mut known = Options::default();
                known.add(OsStr::from_bytes(word))?;
                if known != Options::default() {
                    self.without_effect.push(WithoutEffect {
                        word: text.into_owned(),
                        warning: Some(NEEDS_A_NEW_MOUNT),
                    });
                }
            }
        }
        Ok(())
    }

    /// Gives the mount at a path its new flags.
    ///
    /// # Errors
    /// There is none of ours, the kernel refuses, or the volume was opened for reading and is to be written to.
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
        let failed = |error: Errno| MountError::Mount {
            mountpoint: entry.mountpoint.clone(),
            error: error.into(),
        };
        let mut before = flags_of(statvfs(&entry.mountpoint).map_err(failed)?.f_flag);
        let is_lazy = entry.options.split(',').any(|option| option == "lazytime");
        before.set(MountFlags::LAZYTIME, is_lazy);
        let mut flags = before;
        for &(flag, is_set) in &self.changes {
            flags.set(flag, is_set);
        }
        mount_remount(&entry.mountpoint, flags, "").map_err(failed)?;
        let is_opened = before.contains(MountFlags::RDONLY) && !flags.contains(MountFlags::RDONLY);
        if is_opened && removexattr(&entry.mountpoint, NO_ATTRIBUTE) == Err(Errno::ROFS) {
            mount_remount(&entry.mountpoint, before, "").map_err(failed)?;
            return Err(MountError::OpenedForReading(entry.mountpoint.clone()));
        }
        let is_lazy = flags.contains(MountFlags::LAZYTIME);
        Ok(Remounted {
            mountpoint: entry.mountpoint.clone(),
            lazy_times: (is_lazy != before.contains(MountFlags::LAZYTIME)).then_some(is_lazy),
        })
    }

    /// Whether the mount is for reading only afterwards.
    pub fn is_read_only(&self) -> bool {
        self.change(MountFlags::RDONLY) == Some(true)
    }

    /// The words are mount(8)'s, which says all that shall be and leaves out `lazytime` where that shall not be.
    pub fn complete(&mut self) {
        if self.change(MountFlags::LAZYTIME).is_none() {
            self.changes.push((MountFlags::LAZYTIME, false));
        }
    }

    fn change(&self, wanted: MountFlags) -> Option<bool> {
        let mut changes = self.changes.iter().rev();
        let last = changes.find(|(flag, _)| *flag == wanted);
        last.map(|(_, is_set)| *is_set)
    }
}

fn split(words: &OsStr) -> impl Iterator<Item = &[u8]> {
    let words = words.as_bytes().split(|&byte| byte == b',');
    words.filter(|word| !word.is_empty())
}

fn change_of(word: &str) -> Option<(MountFlags, bool)> {
    Some(match word {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        "suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "lazytime" => (MountFlags::LAZYTIME, true),
        "nolazytime" => (MountFlags::LAZYTIME, false),
        _ => return None,
    })
}

/// As a remount has to say them again to keep them.
fn flags_of(shown: StatVfsMountFlags) -> MountFlags {
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let shown = pairs.into_iter().filter(|(seen, _)| shown.contains(*seen));
    let mut flags: MountFlags = shown.map(|(_, flag)| flag).collect();
    // Without any word on access times the kernel takes relatime.
    if !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
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
    fn what_mount_remembers_asks_for_nothing() {
        let said =
            "remount,ro,nosuid,nodev,relatime,user_id=0,group_id=0,allow_other,default_permissions";
        let remount = parse(said).unwrap();
        assert_eq!(remount.changes.len(), 3);
        let idle = remount.without_effect.iter().map(|idle| &idle.word);
        assert_eq!(idle.collect::<Vec<_>>(), [&"allow_other"]);
    }

    #[test]
    fn what_needs_a_new_mount_is_said() {
        let remount = parse("remount,compress=zstd,noatime").unwrap();
        assert_eq!(remount.without_effect.len(), 2);
        assert!(remount.changes.is_empty());
        assert_eq!(
            parse("remount,bogus"),
            Err(OptionError::Unknown("bogus".into()))
        );
    }
}

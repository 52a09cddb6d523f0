//! Translates the arguments that mount(8) and umount(8) pass to a helper into those of `ubtrfs mount` and
//! `ubtrfs umount`.
//!
//! For a file system of type `fuse.ubtrfs` they run `mount.fuse.ubtrfs` and `umount.fuse.ubtrfs`:
//!
//! ```text
//! mount.TYPE SOURCE DIR [-sfnrvw] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//! umount.TYPE DIR [-flnrv] [-N NAMESPACE] [-t TYPE]
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The exit code that tells mount(8) that the mount failed.
pub(crate) const FAILED: u8 = 32;

/// The meaning of an option letter.
enum Meaning {
    /// An argument of ubtrfs.
    Flag(&'static str),
    /// A word for `-o`.
    Word(&'static str),
    Nothing,
    /// The next argument, or the rest of this one, is a list of words for `-o`.
    Options,
    /// The next argument, or the rest of this one, is ignored.
    Skip,
}

fn of_mount(letter: u8) -> Option<Meaning> {
    Some(match letter {
        b'o' => Meaning::Options,
        b'r' => Meaning::Word("ro"),
        b's' => Meaning::Flag("--sloppy"),
        b'f' => Meaning::Flag("--fake"),
        b'n' | b'w' | b'v' => Meaning::Nothing,
        b't' => Meaning::Skip,
        _ => return None,
    })
}

fn of_umount(letter: u8) -> Option<Meaning> {
    Some(match letter {
        b'l' => Meaning::Flag("--lazy"),
        // The connection of a hanging mount can be aborted; either way the mount is detached.
        b'f' => Meaning::Flag("--lazy"),
        b'n' | b'r' | b'v' => Meaning::Nothing,
        b't' => Meaning::Skip,
        _ => return None,
    })
}

pub(crate) fn mount(args: &[OsString]) -> Vec<OsString> {
    let mut ours = vec!["mount".into(), "--helper".into()];
    ours.extend(translate(args, &of_mount));
    ours
}

pub(crate) fn umount(args: &[OsString]) -> Vec<OsString> {
    let mut ours = vec!["umount".into()];
    ours.extend(translate(args, &of_umount));
    ours
}

/// Translates the known letters. Others are passed on, so that the parser reports them.
fn translate(args: &[OsString], meaning: &dyn Fn(u8) -> Option<Meaning>) -> Vec<OsString> {
    let mut ours = Vec::new();
    let mut places: Vec<OsString> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            places.extend(args.by_ref().cloned());
            break;
        }
        let [b'-', letters @ ..] = bytes else {
            places.push(arg.clone());
            continue;
        };
        if letters.is_empty() || letters.starts_with(b"-") {
            ours.push(arg.clone());
            continue;
        }
        for (at, &letter) in letters.iter().enumerate() {
            let mut value = || match &letters[at + 1..] {
                [] => args.next().cloned(),
                rest => Some(OsStr::from_bytes(rest).to_owned()),
            };
            match meaning(letter) {
                Some(Meaning::Nothing) => {}
                Some(Meaning::Flag(flag)) => ours.push(flag.into()),
                Some(Meaning::Word(word)) => ours.extend(["-o".into(), word.into()]),
                Some(Meaning::Options) => {
                    ours.push("-o".into());
                    ours.extend(value());
                    break;
                }
                Some(Meaning::Skip) => {
                    value();
                    break;
                }
                None => ours.push(OsString::from_vec(vec![b'-', letter])),
            }
        }
    }
    ours.push("--".into());
    ours.extend(places);
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn arguments_of_mount_become_a_command() {
        let said = words(&[
            "a.img",
            "/mnt",
            "-sv",
            "-o",
            "rw,subvol=x",
            "-t",
            "fuse.ubtrfs",
        ]);
        let wanted = "mount --helper --sloppy -o rw,subvol=x -- a.img /mnt";
        assert_eq!(mount(&said).join(OsStr::new(" ")), wanted);
        let said = words(&["a.img", "/mnt", "-fnr", "-orw"]);
        let wanted = "mount --helper --fake -o ro -o rw -- a.img /mnt";
        assert_eq!(mount(&said).join(OsStr::new(" ")), wanted);
    }

    #[test]
    fn arguments_of_umount_become_a_command() {
        let said = words(&["/mnt", "-ln", "-t", "fuse.ubtrfs"]);
        assert_eq!(umount(&said).join(OsStr::new(" ")), "umount --lazy -- /mnt");
        let said = words(&["/mnt", "-f"]);
        assert_eq!(umount(&said).join(OsStr::new(" ")), "umount --lazy -- /mnt");
    }

    #[test]
    fn unknown_letters_are_left_to_be_refused() {
        let said = words(&["-N", "7", "a.img", "--", "-dir"]);
        let wanted = "mount --helper -N -- 7 a.img -dir";
        assert_eq!(mount(&said).join(OsStr::new(" ")), wanted);
    }
}

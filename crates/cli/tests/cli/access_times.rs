//! Access times change on a mount as they do on the kernel's mount with the same options.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT, utimensat};
use ubtrfs_sim::kernel::or_skip;

use crate::mounted::{Mounted, unmount_by};
use crate::process::empty_volume;
use crate::stored::remount;

/// One time long before any change, and one later than any.
const TIMES: [(&str, i64); 2] = [("old", 1_000_000_000), ("ahead", 4_000_000_000)];
const KINDS: [&str; 4] = ["file", "unnoticed", "directory", "symlink"];

/// Creates a file of each kind with each of the access times.
fn make(dir: &Path) {
    for (time, seconds) in TIMES {
        let at = |kind: &str| dir.join(format!("{time}-{kind}"));
        fs::write(at("file"), b"contents").unwrap();
        fs::write(at("unnoticed"), b"contents").unwrap();
        fs::create_dir(at("directory")).unwrap();
        fs::write(at("directory").join("name"), b"").unwrap();
        symlink("nowhere", at("symlink")).unwrap();
        for kind in KINDS {
            set_atime(&at(kind), seconds);
        }
    }
}

fn set_atime(path: &Path, seconds: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        },
        last_modification: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Reads each file once.
fn read(dir: &Path) {
    for (time, _) in TIMES {
        let at = |kind: &str| dir.join(format!("{time}-{kind}"));
        assert_eq!(fs::read(at("file")).unwrap(), b"contents");
        let mut unnoticed = fs::File::options();
        unnoticed
            .read(true)
            .custom_flags(OFlags::NOATIME.bits().cast_signed());
        let mut unnoticed = unnoticed.open(at("unnoticed")).unwrap();
        std::io::copy(&mut unnoticed, &mut std::io::sink()).unwrap();
        assert_eq!(fs::read_dir(at("directory")).unwrap().count(), 1);
        assert_eq!(fs::read_link(at("symlink")).unwrap(), Path::new("nowhere"));
    }
}

/// Returns for each file whether its access time differs from the one that was set.
fn moved(dir: &Path) -> BTreeMap<String, bool> {
    let each = TIMES.iter().flat_map(|(time, seconds)| {
        KINDS.iter().map(move |kind| {
            let name = format!("{time}-{kind}");
            let atime = fs::symlink_metadata(dir.join(&name)).unwrap().atime();
            (name, atime != *seconds)
        })
    });
    each.collect()
}

const OPTIONS: [&str; 7] = [
    "relatime",
    "noatime",
    "strictatime",
    "nodiratime",
    "strictatime,nodiratime",
    "noatime,diratime",
    "lazytime",
];

/// Mounts with our program. The options are given at once or by a remount.
fn by_us(options: &str, is_remount: bool) -> Option<[BTreeMap<String, bool>; 2]> {
    let mounted = Mounted::new("rw", |_| {})?;
    make(&mounted.dir);
    mounted.unmount();
    if is_remount {
        mounted.mount("rw");
        remount(&mounted, options);
    } else {
        mounted.mount(options)
    }
    read(&mounted.dir);
    let shown = moved(&mounted.dir);
    mounted.unmount();
    mounted.mount("ro,noatime");
    let kept = moved(&mounted.dir);
    mounted.unmount();
    Some([shown, kept])
}

/// A mount by the kernel. The requested options are the only ones about access times.
struct Theirs(PathBuf);

impl Theirs {
    fn new(image: &Path, options: &str) -> Theirs {
        let dir = image.with_extension("mnt");
        fs::create_dir_all(&dir).unwrap();
        let options = format!("loop,{options}");
        let args = ["-t", "btrfs", "-o", &options].map(OsStr::new);
        by_system(
            "mount",
            args.into_iter().chain([image.as_os_str(), dir.as_os_str()]),
        );
        Theirs(dir)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        unmount_by(system("umount").arg(&self.0));
    }
}

fn system(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command
}

fn by_system<'a>(program: &str, args: impl IntoIterator<Item = &'a OsStr>) {
    let output = system(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

fn by_kernel(options: &str, is_remount: bool) -> [BTreeMap<String, bool>; 2] {
    let (_scratch, image) = empty_volume();
    make(&Theirs::new(&image, "rw").0);
    let theirs = if is_remount {
        let theirs = Theirs::new(&image, "rw");
        let options = format!("remount,{options}");
        let args = ["-o".as_ref(), options.as_ref(), theirs.0.as_os_str()];
        by_system("mount", args);
        theirs
    } else {
        Theirs::new(&image, options)
    };
    read(&theirs.0);
    let shown = moved(&theirs.0);
    drop(theirs);
    let kept = moved(&Theirs::new(&image, "ro,noatime").0);
    [shown, kept]
}

#[test]
fn access_times_move_as_on_the_kernels_mount() {
    if !or_skip("access_times_move_as_on_the_kernels_mount") {
        return;
    }
    for options in OPTIONS {
        for is_remount in [false, true] {
            let Some(ours) = by_us(options, is_remount) else {
                return;
            };
            let theirs = by_kernel(options, is_remount);
            assert_eq!(ours, theirs, "-o {options}, by a remount: {is_remount}");
        }
    }
}

#[test]
fn access_times_move_as_options_say() {
    for (options, moving) in [
        ("relatime", "old-directory old-file old-symlink"),
        ("noatime", ""),
        ("nodiratime", "old-file old-symlink"),
        (
            "strictatime",
            "ahead-directory ahead-file ahead-symlink old-directory old-file old-symlink",
        ),
    ] {
        let Some(both) = by_us(options, false) else {
            return;
        };
        for found in both {
            let found = found.into_iter().filter(|(_, is_moved)| *is_moved);
            let found: Vec<String> = found.map(|(name, _)| name).collect();
            assert_eq!(found.join(" "), moving, "-o {options}");
        }
    }
}

//! Attributes of inodes: xattrs, ACLs, modes, owners, times, flags.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, IFlags, Timespec, Timestamps, utimensat};
use rustix::io::Errno;

use super::{Scale, colliding_names, write};
use crate::error::At;
use crate::{Result, Rng};

/// Returns the size of the largest xattr that fitted.
pub(super) fn fill(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<usize> {
    let largest = xattrs(dir, rng)?;
    acls(dir)?;
    modes_and_owners(dir)?;
    flags(dir, scale)?;
    // Last, because nothing may access these files and their folder afterwards.
    times(dir)?;
    Ok(largest)
}

fn xattrs(dir: &Path, rng: &mut Rng) -> Result<usize> {
    let many = dir.join("xattr-many");
    write(&many, "many xattrs")?;
    for number in 0..120_usize {
        let mut value = vec![0; number];
        rng.fill(&mut value);
        set(&many, format!("user.number-{number}"), &value)?;
    }

    let odd = dir.join("xattr-odd");
    write(&odd, "odd xattrs")?;
    set(&odd, "user.empty", b"")?;
    set(&odd, "user.with/a/slash", b"1")?;
    set(&odd, "user./", b"2")?;
    set(
        &odd,
        OsStr::from_bytes(b"user.\xff\xfe not utf-8"),
        b"\xff\0\xfe",
    )?;
    set(&odd, format!("user.{}", "l".repeat(250)), b"a name of 255")?;
    set(&odd, "trusted.ubtrfs", b"for root")?;
    set(&odd, "security.ubtrfs", b"no module has this name")?;
    // cap_net_raw, effective.
    let mut capability = [0; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    set(&odd, "security.capability", &capability)?;

    let colliding = dir.join("xattr-colliding");
    write(&colliding, "xattrs in one item")?;
    for (number, name) in colliding_names(b"user.c-", 10).iter().enumerate() {
        let value = vec![b'0' + number as u8; number * 3];
        set(&colliding, OsStr::from_bytes(name), &value)?;
    }

    let large = dir.join("xattr-large");
    write(&large, "an xattr that fills its leaf")?;
    let mut largest = 0;
    for size in [1000, 3500, 7000, 16_000] {
        let mut value = vec![0; size];
        rng.fill(&mut value);
        // Overwriting the old value would depend on the remaining space in its leaf.
        if largest > 0 {
            xattr::remove(&large, "user.large").at("removexattr", &large)?;
        }
        match xattr::set(&large, "user.large", &value) {
            Ok(()) => largest = size,
            // Larger than an item for this node size.
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                set(&large, "user.large", &value[..largest])?;
                break;
            }
            Err(error) => return Err(error).at("setxattr", &large),
        }
    }

    let sub = dir.join("xattr-dir");
    fs::create_dir(&sub).at("create", &sub)?;
    set(&sub, "user.on-a-directory", b"value")?;
    let link = dir.join("xattr-symlink");
    symlink("nowhere", &link).at("symlink", &link)?;
    set(&link, "trusted.on-a-symlink", b"value")?;
    Ok(largest)
}

fn set(path: &Path, name: impl AsRef<OsStr>, value: &[u8]) -> Result<()> {
    xattr::set(path, name, value).at("setxattr", path)
}

/// Tag, permissions and id of an ACL entry, as in `linux/posix_acl_xattr.h`.
type AclEntry = (u16, u16, u32);

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

fn acl(entries: &[AclEntry]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn acls(dir: &Path) -> Result<()> {
    let access = acl(&[
        (USER_OBJ, 7, NO_ID),
        (USER, 5, 1000),
        (USER, 6, 4_000_000_000),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 2, 100),
        (MASK, 7, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    let file = dir.join("acl-file");
    write(&file, "guarded")?;
    set(&file, "system.posix_acl_access", &access)?;

    let sub = dir.join("acl-dir");
    fs::create_dir(&sub).at("create", &sub)?;
    set(&sub, "system.posix_acl_access", &access)?;
    set(&sub, "system.posix_acl_default", &access)?;
    let heir = sub.join("heir");
    write(&heir, "inherits")?;
    let heir_dir = sub.join("heir-dir");
    fs::create_dir(&heir_dir).at("create", &heir_dir)
}

fn modes_and_owners(dir: &Path) -> Result<()> {
    for mode in [
        0o0000, 0o0400, 0o0644, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777,
    ] {
        for is_dir in [false, true] {
            let kind = if is_dir { "dir" } else { "file" };
            let path = dir.join(format!("mode-{mode:04o}-{kind}"));
            if is_dir {
                fs::create_dir(&path).at("create", &path)?;
            } else {
                write(&path, "")?;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).at("chmod", &path)?;
        }
    }
    for id in [1, 1000, 65_534, 65_536, 2_147_483_648, 4_294_967_294_u32] {
        let path = dir.join(format!("owner-{id}"));
        write(&path, "")?;
        chown(&path, Some(id), Some(id ^ 1)).at("chown", &path)?;
    }
    let link = dir.join("owner-of-symlink");
    symlink("nowhere", &link).at("symlink", &link)?;
    lchown(&link, Some(3_000_000_000), Some(12)).at("lchown", &link)
}

fn flags(dir: &Path, scale: &Scale) -> Result<()> {
    for (name, flags) in [
        ("flag-noatime", IFlags::NOATIME),
        ("flag-nodump", IFlags::NODUMP),
        ("flag-sync", IFlags::SYNC),
        ("flag-compressed", IFlags::COMPRESSED),
        ("flag-nocow", IFlags::NOCOW),
    ] {
        if flags == IFlags::NOCOW && !scale.nodatacow {
            continue;
        }
        let path = dir.join(name);
        write(&path, "")?;
        let file = fs::File::open(&path).at("open", &path)?;
        rustix::fs::ioctl_setflags(&file, flags).at("set flags", &path)?;
        write(&path, "written after the flag was set")?;
    }
    Ok(())
}

fn times(dir: &Path) -> Result<()> {
    let moments = [
        ("time-epoch", 0, 0),
        ("time-before-1970", -1, 999_999_999),
        ("time-1901", -2_147_483_649, 1),
        ("time-1500", -14_830_974_000, 500_000_000),
        ("time-2038", 2_147_483_648, 123_456_789),
        ("time-2106", 4_294_967_296, 999_999_999),
        ("time-2500", 16_725_225_600, 7),
        ("time-36812", 1 << 40, 42),
    ];
    let stamp = |path: &Path, tv_sec: i64, tv_nsec: i64| {
        let later = Timespec {
            tv_sec: tv_sec + 1,
            tv_nsec,
        };
        let times = Timestamps {
            last_access: later,
            last_modification: Timespec { tv_sec, tv_nsec },
        };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).at("utimensat", path)
    };
    for (name, seconds, nanoseconds) in moments {
        let file = dir.join(name);
        write(&file, name)?;
        stamp(&file, seconds, nanoseconds)?;
        let link = dir.join(format!("{name}-symlink"));
        symlink(name, &link).at("symlink", &link)?;
        stamp(&link, seconds, nanoseconds)?;
        let sub = dir.join(format!("{name}-dir"));
        fs::create_dir(&sub).at("create", &sub)?;
        stamp(&sub, seconds, nanoseconds)?;
    }
    stamp(dir, -1, 1)
}

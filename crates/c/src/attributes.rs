//! Attributes of files by path.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use ubtrfs::{FileTimes, XattrMode};

use crate::arguments::{buffer, bytes, copy_whole, handle, path, place, text};
use crate::failure::{Failure, Result, size, status};
use crate::metadata::{NewTime, ubtrfs_stat, ubtrfs_timespec};
use crate::subvolume::ubtrfs_subvolume;

/// Do not follow a symbolic link at the end of the path.
pub const UBTRFS_NOFOLLOW: c_uint = 1;
/// The attribute must not exist.
pub const UBTRFS_XATTR_CREATE: c_uint = 2;
/// The attribute must exist.
pub const UBTRFS_XATTR_REPLACE: c_uint = 4;

fn follows(flags: c_uint) -> Result<bool> {
    match flags {
        0 => Ok(true),
        UBTRFS_NOFOLLOW => Ok(false),
        _ => Err(Failure::invalid("unknown flags")),
    }
}

/// Reads the attributes of a file. Symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_stat(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    stat: *mut ubtrfs_stat,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at, mut stat) = unsafe { (handle(subvolume)?, path(at)?, place(stat)?) };
        stat.put(of.subvolume.metadata(at)?.into());
        Ok(())
    })
}

/// Reads the attributes of a file, or of a symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_lstat(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    stat: *mut ubtrfs_stat,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at, mut stat) = unsafe { (handle(subvolume)?, path(at)?, place(stat)?) };
        stat.put(of.subvolume.symlink_metadata(at)?.into());
        Ok(())
    })
}

/// Sets the permission bits. Symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_chmod(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    mode: u32,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        let permissions = Permissions::from_mode(mode & !libc::S_IFMT);
        Ok(of.subvolume.set_permissions(at, permissions)?)
    })
}

/// Sets user and group. UINT32_MAX leaves an id unchanged. `flags` is 0 or UBTRFS_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_chown(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    uid: u32,
    gid: u32,
    flags: c_uint,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        let wanted = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        let (uid, gid) = (wanted(uid), wanted(gid));
        if follows(flags)? {
            Ok(of.subvolume.chown(at, uid, gid)?)
        } else {
            Ok(of.subvolume.lchown(at, uid, gid)?)
        }
    })
}

/// Sets times. As for utimensat, `nsec` may be UTIME_NOW or UTIME_OMIT of sys/stat.h: the current time, or no change. A
/// NULL time is also left unchanged. `flags` is 0 or UBTRFS_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_utimens(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    atime: *const ubtrfs_timespec,
    mtime: *const ubtrfs_timespec,
    flags: c_uint,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        // SAFETY: see the head of the header.
        let (atime, mtime) = unsafe { (atime.as_ref(), mtime.as_ref()) };
        let is_followed = follows(flags)?;
        let (atime, mtime) = (NewTime::of(atime)?, NewTime::of(mtime)?);
        if let (NewTime::Kept, NewTime::Kept) = (&atime, &mtime) {
            // As in the kernel, not even the change time.
            return Ok(());
        }
        let mut times = FileTimes::new();
        times = match atime {
            NewTime::Kept => times,
            NewTime::Now => times.set_accessed_now(),
            NewTime::At(time) => times.set_accessed(time),
        };
        times = match mtime {
            NewTime::Kept => times,
            NewTime::Now => times.set_modified_now(),
            NewTime::At(time) => times.set_modified(time),
        };
        if is_followed {
            Ok(of.subvolume.set_times(at, times)?)
        } else {
            Ok(of.subvolume.set_times_nofollow(at, times)?)
        }
    })
}

/// Copies the value of an extended attribute, such as "user.note", and returns its size. `flags` is 0 or
/// UBTRFS_NOFOLLOW. If there is no such attribute the error is -ENODATA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_getxattr(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    name: *const c_char,
    buf: *mut c_void,
    buf_size: usize,
    flags: c_uint,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, at, name) = unsafe { (handle(subvolume)?, path(at)?, text(name)?) };
        // SAFETY: see the head of the header.
        let buf = unsafe { buffer(buf, buf_size)? };
        let value = if follows(flags)? {
            of.subvolume.xattr(at, name)?
        } else {
            of.subvolume.symlink_xattr(at, name)?
        };
        let missing = || Failure::new(libc::ENODATA, "there is no such attribute");
        copy_whole(&value.ok_or_else(missing)?, buf)
    })
}

/// Copies the names of all extended attributes, each with a NUL, and returns their size. `flags` is 0 or
/// UBTRFS_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_listxattr(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    buf: *mut c_void,
    buf_size: usize,
    flags: c_uint,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, at, buf) = unsafe { (handle(subvolume)?, path(at)?, buffer(buf, buf_size)?) };
        let all = if follows(flags)? {
            of.subvolume.xattrs(at)?
        } else {
            of.subvolume.symlink_xattrs(at)?
        };
        let names = all.iter().map(|(name, _)| name.as_bytes());
        let names: Vec<u8> = names.flat_map(|name| [name, b"\0"].concat()).collect();
        copy_whole(&names, buf)
    })
}

/// Sets an extended attribute. `flags` is 0, UBTRFS_XATTR_CREATE or UBTRFS_XATTR_REPLACE, optionally with
/// UBTRFS_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_setxattr(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    name: *const c_char,
    value: *const c_void,
    value_size: usize,
    flags: c_uint,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at, name) = unsafe { (handle(subvolume)?, path(at)?, text(name)?) };
        // SAFETY: see the head of the header.
        let value = unsafe { bytes(value, value_size)? };
        let of = &of.subvolume;
        let is_followed = follows(flags & UBTRFS_NOFOLLOW)?;
        let mode = match flags & !UBTRFS_NOFOLLOW {
            0 => XattrMode::Any,
            UBTRFS_XATTR_CREATE => XattrMode::Create,
            UBTRFS_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Failure::invalid("unknown flags")),
        };
        if is_followed {
            Ok(of.set_xattr(at, name, value, mode)?)
        } else {
            Ok(of.set_symlink_xattr(at, name, value, mode)?)
        }
    })
}

/// Removes an extended attribute. `flags` is 0 or UBTRFS_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_removexattr(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    name: *const c_char,
    flags: c_uint,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at, name) = unsafe { (handle(subvolume)?, path(at)?, text(name)?) };
        if follows(flags)? {
            Ok(of.subvolume.remove_xattr(at, name)?)
        } else {
            Ok(of.subvolume.remove_symlink_xattr(at, name)?)
        }
    })
}

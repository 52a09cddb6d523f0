//! Operations on names: creating, removing, moving and linking.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use ubtrfs::DirBuilder;

use crate::arguments::{buffer, copy_whole, handle, path};
use crate::failure::{Failure, size, status};
use crate::subvolume::ubtrfs_subvolume;

/// A rename must not replace an existing file.
pub const UBTRFS_RENAME_NOREPLACE: c_uint = 1;
/// A rename exchanges two names.
pub const UBTRFS_RENAME_EXCHANGE: c_uint = 2;

/// Creates a directory with the permissions in `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkdir(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    mode: u32,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        let builder = DirBuilder::new().mode(mode);
        Ok(of.subvolume.create_dir_with(at, &builder)?)
    })
}

/// Creates a directory and its missing parents, with permissions 0755.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkdir_all(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        Ok(of.subvolume.create_dir_all(at)?)
    })
}

/// Creates a FIFO, a socket or a device file; `mode` has the file type and the permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mknod(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    mode: u32,
    rdev: u64,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        Ok(of.subvolume.create_node(at, mode, rdev)?)
    })
}

/// Removes the name of a file other than a directory. Symbolic links are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_unlink(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        Ok(of.subvolume.remove_file(at)?)
    })
}

/// Removes an empty directory. An empty subvolume is deleted with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_rmdir(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        Ok(of.subvolume.remove_dir(at)?)
    })
}

/// Removes a directory with all its contents. Symbolic links are not followed. If it contains a subvolume, nothing is
/// removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_remove_all(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        Ok(of.subvolume.remove_dir_all(at)?)
    })
}

/// Renames a file, and replaces an existing file at `to`. `flags` is 0, UBTRFS_RENAME_NOREPLACE or
/// UBTRFS_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_rename(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, from, to) = unsafe { (handle(subvolume)?, path(from)?, path(to)?) };
        let moved = match flags {
            0 => of.subvolume.rename(from, to),
            UBTRFS_RENAME_NOREPLACE => of.subvolume.rename_no_replace(from, to),
            UBTRFS_RENAME_EXCHANGE => of.subvolume.rename_exchange(from, to),
            _ => return Err(Failure::invalid("unknown flags")),
        };
        Ok(moved?)
    })
}

/// Creates a symbolic link to `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_symlink(
    subvolume: *const ubtrfs_subvolume,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, target, link) = unsafe { (handle(subvolume)?, path(target)?, path(link)?) };
        Ok(of.subvolume.symlink(target, link)?)
    })
}

/// Copies the target of a symbolic link, without a NUL, and returns its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_readlink(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    buf: *mut c_void,
    buf_size: usize,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, at, buf) = unsafe { (handle(subvolume)?, path(at)?, buffer(buf, buf_size)?) };
        let target = of.subvolume.read_link(at)?;
        copy_whole(target.as_os_str().as_bytes(), buf)
    })
}

/// Creates a hard link to a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_link(
    subvolume: *const ubtrfs_subvolume,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, original, link) = unsafe { (handle(subvolume)?, path(original)?, path(link)?) };
        Ok(of.subvolume.hard_link(original, link)?)
    })
}

/// Makes `to` share the content of `from`, like `cp --reflink`, without copying data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_reflink(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, from, to) = unsafe { (handle(subvolume)?, path(from)?, path(to)?) };
        Ok(of.subvolume.reflink(from, to)?)
    })
}

//! Whole trees: copied within a volume and from and to this machine, and as tar archives.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use ubtrfs::Problems;

use crate::arguments::{file_of, handle, path, text_of};
use crate::failure::size;
use crate::subvolume::ubtrfs_subvolume;

/// Hears of a file that could not be transferred, and why; `data` is the caller's. Both texts are gone afterwards.
pub type ubtrfs_problem_callback =
    Option<unsafe extern "C" fn(path: *const c_char, message: *const c_char, data: *mut c_void)>;

/// Tells the caller of problems, and returns how many there are.
///
/// # Safety
///
/// The callback takes what its type says.
unsafe fn tell(problems: &Problems, callback: ubtrfs_problem_callback, data: *mut c_void) -> usize {
    if let Some(callback) = callback {
        for problem in problems.listed() {
            let path = text_of(problem.path.as_os_str().as_bytes());
            let message = text_of(&problem.message);
            // SAFETY: the caller's.
            unsafe { callback(path.as_ptr(), message.as_ptr(), data) };
        }
    }
    usize::try_from(problems.count()).unwrap_or(usize::MAX)
}

/// Copies a file, or a directory with all below, to another path. Data is shared. Returns how many files it could not copy:
/// the callback, which may be NULL, hears of the first 1000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_tree(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to: *const c_char,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, from, to) = unsafe { (handle(subvolume)?, path(from)?, path(to)?) };
        let problems = of.subvolume.copy_tree(from, to)?;
        // SAFETY: the head of the header.
        Ok(unsafe { tell(&problems, callback, data) })
    })
}

/// Copies a file of this machine, or a directory with all below, into the volume. Links are copied as links. Returns as
/// ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_from_host(
    subvolume: *const ubtrfs_subvolume,
    host: *const c_char,
    to: *const c_char,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, host, to) = unsafe { (handle(subvolume)?, path(host)?, path(to)?) };
        let problems = of.subvolume.copy_from_host(host, to)?;
        // SAFETY: the head of the header.
        Ok(unsafe { tell(&problems, callback, data) })
    })
}

/// Copies a file, or a directory with all below, to this machine. Returns as ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_to_host(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    host: *const c_char,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, from, host) = unsafe { (handle(subvolume)?, path(from)?, path(host)?) };
        let problems = of.subvolume.copy_to_host(from, host)?;
        // SAFETY: the head of the header.
        Ok(unsafe { tell(&problems, callback, data) })
    })
}

/// Writes a file, or a directory with all below, as a tar archive to a file descriptor. Returns as ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_export_tar(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    fd: c_int,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, at, out) = unsafe { (handle(subvolume)?, path(at)?, file_of(fd)?) };
        let problems = of.subvolume.export_tar(at, out)?;
        // SAFETY: the head of the header.
        Ok(unsafe { tell(&problems, callback, data) })
    })
}

/// Unpacks a tar archive, compressed or not, from a file descriptor into a directory. Files that exist are replaced. Returns
/// as ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_import_tar(
    subvolume: *const ubtrfs_subvolume,
    fd: c_int,
    dir: *const c_char,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, archive, dir) = unsafe { (handle(subvolume)?, file_of(fd)?, path(dir)?) };
        let problems = of.subvolume.import_tar(archive, dir)?;
        // SAFETY: the head of the header.
        Ok(unsafe { tell(&problems, callback, data) })
    })
}

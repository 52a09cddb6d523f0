//! Whole trees: copied within a volume and from and to this machine, and as tar archives.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::arguments::{file_of, handle, path};
use crate::failure::{Result, size};
use crate::progress::{TransferMeter, ubtrfs_problem_callback};
use crate::subvolume::ubtrfs_subvolume;
use crate::transfer_options::ubtrfs_transfer_options;

/// Does a transfer or a removal. Returns how many problems there were.
///
/// # Safety
///
/// The options are null or living, and the callback takes what its type says.
unsafe fn transfer(
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
    work: impl FnOnce(&ubtrfs_transfer_options, &mut TransferMeter) -> ubtrfs::Result<()>,
) -> Result<usize> {
    let default = ubtrfs_transfer_options::default();
    // SAFETY: the caller's.
    let options = unsafe { options.as_ref() }.unwrap_or(&default);
    // SAFETY: the caller's.
    let mut meter = unsafe { TransferMeter::new(options.listener, callback, data) };
    let done = work(options, &mut meter);
    meter.meter.outcome(done)?;
    Ok(meter.problems)
}

/// Copies a file, or a directory with all below, to another path. Data is shared. Returns how many files it could not copy:
/// the callback, which may be NULL, hears of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_tree(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to: *const c_char,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    // SAFETY: the head of the header.
    unsafe { ubtrfs_copy_tree_with(subvolume, from, subvolume, to, ptr::null(), callback, data) }
}

/// Copies as ubtrfs_copy_tree, to a path in a subvolume that may be of another volume, in the way that the options say. They
/// may be NULL. Data is shared within a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_tree_with(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to_subvolume: *const ubtrfs_subvolume,
    to: *const c_char,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, from, into, to) = unsafe {
            (
                handle(subvolume)?,
                path(from)?,
                handle(to_subvolume)?,
                path(to)?,
            )
        };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |options, observer| {
                (of.subvolume).copy_tree_to(from, &into.subvolume, to, &options.copy, observer)
            })
        }
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
    // SAFETY: the head of the header.
    unsafe { ubtrfs_copy_from_host_with(subvolume, host, to, ptr::null(), callback, data) }
}

/// Copies as ubtrfs_copy_from_host, in the way that the options say, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_from_host_with(
    subvolume: *const ubtrfs_subvolume,
    host: *const c_char,
    to: *const c_char,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, host, to) = unsafe { (handle(subvolume)?, path(host)?, path(to)?) };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |options, observer| {
                (of.subvolume).copy_from_host_with(host, to, &options.copy, observer)
            })
        }
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
    // SAFETY: the head of the header.
    unsafe { ubtrfs_copy_to_host_with(subvolume, from, host, ptr::null(), callback, data) }
}

/// Copies as ubtrfs_copy_to_host, in the way that the options say, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_to_host_with(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    host: *const c_char,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, from, host) = unsafe { (handle(subvolume)?, path(from)?, path(host)?) };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |options, observer| {
                (of.subvolume).copy_to_host_with(from, host, &options.copy, observer)
            })
        }
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
    // SAFETY: the head of the header.
    unsafe { ubtrfs_export_tar_with(subvolume, at, fd, ptr::null(), callback, data) }
}

/// Writes an archive as ubtrfs_export_tar. The options, which may be NULL, have the progress; the others mean nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_export_tar_with(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    fd: c_int,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, at, out) = unsafe { (handle(subvolume)?, path(at)?, file_of(fd)?) };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |_, observer| {
                of.subvolume.export_tar_with(at, out, observer)
            })
        }
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
    // SAFETY: the head of the header.
    unsafe { ubtrfs_import_tar_with(subvolume, fd, dir, ptr::null(), callback, data) }
}

/// Unpacks an archive as ubtrfs_import_tar. The options, which may be NULL, have the progress and the umask; the others mean
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_import_tar_with(
    subvolume: *const ubtrfs_subvolume,
    fd: c_int,
    dir: *const c_char,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, archive, dir) = unsafe { (handle(subvolume)?, file_of(fd)?, path(dir)?) };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |options, observer| {
                (of.subvolume).import_tar_with(archive, dir, &options.import, observer)
            })
        }
    })
}

/// Removes a file, or a directory with all below, past files that cannot be removed. Links are removed themselves. The
/// options, which may be NULL, have the progress and the treatment of subvolumes. Returns how many problems there were: the
/// callback, which may be NULL, hears of each. A directory in which something stays is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_remove_tree(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    options: *const ubtrfs_transfer_options,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        // SAFETY: the head of the header.
        unsafe {
            transfer(options, callback, data, |options, observer| {
                (of.subvolume).remove_tree_with(at, &options.remove, observer)
            })
        }
    })
}

//! Whole trees: copying within a volume, from and to the host, and tar archives.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::arguments::{file_of, handle, path};
use crate::failure::{Result, size};
use crate::progress::{Listener, Meter, ubtrfs_progress_callback};
use crate::subvolume::ubtrfs_subvolume;
use crate::transfer_options::ubtrfs_transfer_options;

/// Runs a transfer or a removal. Returns the number of problems.
///
/// # Safety
///
/// The options are null or point to a living object, and the callback accepts arguments of its declared type.
unsafe fn transfer(
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
    work: impl FnOnce(&ubtrfs_transfer_options, &mut Meter) -> ubtrfs::Result<()>,
) -> Result<usize> {
    let default = ubtrfs_transfer_options::default();
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.as_ref() }.unwrap_or(&default);
    // SAFETY: guaranteed by the caller.
    let mut meter = Meter::new(unsafe { Listener::new(progress, data) });
    let done = work(options, &mut meter);
    meter.outcome(done)?;
    Ok(meter.problems)
}

/// Copies a file, or a directory with all its contents, to a path in this or another subvolume, which may belong to
/// another volume. Data is shared within a volume. The options may be NULL. Returns the number of problems: files that
/// could not be copied, or only in part. The progress callback, which may be NULL, receives each problem.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_tree(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    to_subvolume: *const ubtrfs_subvolume,
    to: *const c_char,
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, from, into, to) = unsafe {
            (
                handle(subvolume)?,
                path(from)?,
                handle(to_subvolume)?,
                path(to)?,
            )
        };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(options, progress, data, |options, observer| {
                (of.subvolume).copy_tree(from, &into.subvolume, to, &options.copy, observer)
            })
        }
    })
}

/// Copies a file of the host, or a directory with all its contents, into the volume. Symbolic links are copied as
/// links. The options may be NULL. Returns as ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_from_host(
    subvolume: *const ubtrfs_subvolume,
    host: *const c_char,
    to: *const c_char,
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, host, to) = unsafe { (handle(subvolume)?, path(host)?, path(to)?) };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(options, progress, data, |options, observer| {
                (of.subvolume).copy_from_host(host, to, &options.copy, observer)
            })
        }
    })
}

/// Copies a file, or a directory with all its contents, to the host. The options may be NULL. Returns as
/// ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_copy_to_host(
    subvolume: *const ubtrfs_subvolume,
    from: *const c_char,
    host: *const c_char,
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, from, host) = unsafe { (handle(subvolume)?, path(from)?, path(host)?) };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(options, progress, data, |options, observer| {
                (of.subvolume).copy_to_host(from, host, &options.copy, observer)
            })
        }
    })
}

/// Writes a file, or a directory with all its contents, as a tar archive to a file descriptor. Returns as
/// ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_export_tar(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    fd: c_int,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, at, out) = unsafe { (handle(subvolume)?, path(at)?, file_of(fd)?) };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(ptr::null(), progress, data, |_, observer| {
                of.subvolume.export_tar(at, out, observer)
            })
        }
    })
}

/// Unpacks a tar archive, compressed or not, from a file descriptor into a directory. Existing files are replaced. Only
/// the umask of the options, which may be NULL, has an effect. Returns as ubtrfs_copy_tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_import_tar(
    subvolume: *const ubtrfs_subvolume,
    fd: c_int,
    dir: *const c_char,
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, archive, dir) = unsafe { (handle(subvolume)?, file_of(fd)?, path(dir)?) };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(options, progress, data, |options, observer| {
                (of.subvolume).import_tar(archive, dir, &options.import, observer)
            })
        }
    })
}

/// Removes a file, or a directory with all its contents, and continues after files that cannot be removed. Symbolic
/// links are not followed. The options, which may be NULL, have the treatment of subvolumes. Returns the number of
/// problems, as ubtrfs_copy_tree. A directory that is not empty afterwards counts as one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_remove_tree(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    options: *const ubtrfs_transfer_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, at) = unsafe { (handle(subvolume)?, path(at)?) };
        // SAFETY: see the head of the header.
        unsafe {
            transfer(options, progress, data, |options, observer| {
                (of.subvolume).remove_tree(at, &options.remove, observer)
            })
        }
    })
}

//! Subvolumes and snapshots.

use std::ffi::{c_char, c_int, c_uint};

use ubtrfs::{Access, Subvolume};

use crate::arguments::{handle, handle_place, optional_place, path, take_back};
use crate::failure::{Failure, status};
use crate::volume::{UBTRFS_READ_ONLY, ubtrfs_volume};

/// A subvolume: a tree of files. Paths begin at its root.
#[derive(Debug)]
pub struct ubtrfs_subvolume {
    pub(crate) subvolume: Subvolume,
}

/// Opens the top level, the subvolume that contains all others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_root(
    volume: *const ubtrfs_volume,
    root: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, handle) = unsafe { (handle_place(root)?, handle(volume)?) };
        let subvolume = handle.volume.root().clone();
        opened.give(ubtrfs_subvolume { subvolume });
        Ok(())
    })
}

/// Opens the subvolume at a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_open(
    dir: *const ubtrfs_subvolume,
    at: *const c_char,
    subvolume: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, dir, at) = unsafe { (handle_place(subvolume)?, handle(dir)?, path(at)?) };
        let subvolume = dir.subvolume.subvolume(at)?;
        opened.give(ubtrfs_subvolume { subvolume });
        Ok(())
    })
}

/// Opens a subvolume by its id. The error is -ENOENT if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_subvolume_by_id(
    volume: *const ubtrfs_volume,
    id: u64,
    subvolume: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, handle) = unsafe { (handle_place(subvolume)?, handle(volume)?) };
        let subvolume = handle.volume.subvolume_by_id(id)?;
        opened.give(ubtrfs_subvolume { subvolume });
        Ok(())
    })
}

/// Opens the default subvolume, which mounts use unless another one is named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_default_subvolume(
    volume: *const ubtrfs_volume,
    subvolume: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, handle) = unsafe { (handle_place(subvolume)?, handle(volume)?) };
        let subvolume = handle.volume.default_subvolume()?;
        opened.give(ubtrfs_subvolume { subvolume });
        Ok(())
    })
}

/// Sets the default subvolume, which mounts use unless another one is named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_set_default_subvolume(
    volume: *const ubtrfs_volume,
    subvolume: *const ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (handle, subvolume) = unsafe { (handle(volume)?, handle(subvolume)?) };
        Ok((handle.volume).set_default_subvolume(&subvolume.subvolume)?)
    })
}

/// Runs commits until the space of all deleted subvolumes is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_free_deleted_subvolumes(
    volume: *const ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        Ok(handle.volume.free_deleted_subvolumes()?)
    })
}

/// Frees a handle. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_free(subvolume: *mut ubtrfs_subvolume) {
    status(|| {
        // SAFETY: see the head of the header.
        drop(unsafe { take_back(subvolume) });
        Ok(())
    });
}

/// Returns the id of the subvolume within its volume; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_id(subvolume: *const ubtrfs_subvolume) -> u64 {
    // SAFETY: see the head of the header.
    let handle = unsafe { handle(subvolume) };
    handle.map_or(0, |handle| handle.subvolume.id())
}

/// Creates an empty subvolume, and commits. `made` may be NULL if no handle is wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_create(
    dir: *const ubtrfs_subvolume,
    at: *const c_char,
    made: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (made, dir, at) = unsafe { (optional_place(made), handle(dir)?, path(at)?) };
        let subvolume = dir.subvolume.create_subvolume(at)?;
        if let Some(made) = made {
            made.give(ubtrfs_subvolume { subvolume });
        }
        Ok(())
    })
}

/// Creates a snapshot at `to` of the subvolume at `of`, and commits. "/" is the subvolume itself. The flag
/// UBTRFS_READ_ONLY makes the snapshot read-only. `made` may be NULL if no handle is wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_snapshot(
    dir: *const ubtrfs_subvolume,
    of: *const c_char,
    to: *const c_char,
    flags: c_uint,
    made: *mut *mut ubtrfs_subvolume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (made, dir, of, to) =
            unsafe { (optional_place(made), handle(dir)?, path(of)?, path(to)?) };
        let access = match flags {
            0 => Access::Writable,
            UBTRFS_READ_ONLY => Access::ReadOnly,
            _ => return Err(Failure::invalid("unknown flags")),
        };
        let subvolume = dir.subvolume.snapshot(of, to, access)?;
        if let Some(made) = made {
            made.give(ubtrfs_subvolume { subvolume });
        }
        Ok(())
    })
}

/// Deletes a subvolume with all its contents. It must not contain nested subvolumes. Its space is freed in the
/// background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_delete(
    dir: *const ubtrfs_subvolume,
    at: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (dir, at) = unsafe { (handle(dir)?, path(at)?) };
        Ok(dir.subvolume.delete_subvolume(at)?)
    })
}

/// Makes the subvolume read-only, or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_subvolume_set_read_only(
    subvolume: *const ubtrfs_subvolume,
    read_only: bool,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(subvolume)? };
        Ok(handle.subvolume.set_read_only(read_only)?)
    })
}

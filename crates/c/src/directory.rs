//! Listing directories.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use ubtrfs::ReadDir;

use crate::arguments::{handle, handle_alone, handle_place, path, place, take_back};
use crate::failure::{Failure, number, status};
use crate::metadata::mode_of;
use crate::subvolume::ubtrfs_subvolume;

/// A directory that is being listed.
#[derive(Debug)]
pub struct ubtrfs_dir {
    entries: ReadDir,
    /// The name of the last entry.
    name: CString,
}

/// An entry of a directory.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_dirent {
    /// Valid until the next entry is read, or the directory closed.
    pub name: *const c_char,
    pub ino: u64,
    /// Only the file type: use S_ISDIR(mode) and similar macros of sys/stat.h.
    pub mode: u32,
    /// Whether the entry is the root of a subvolume.
    pub is_subvolume: bool,
}

/// Opens a directory for listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_opendir(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    dir: *mut *mut ubtrfs_dir,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, of, at) = unsafe { (handle_place(dir)?, handle(subvolume)?, path(at)?) };
        let entries = of.subvolume.read_dir(at)?;
        let name = CString::default();
        opened.give(ubtrfs_dir { entries, name });
        Ok(())
    })
}

/// Reads the next entry. Returns 1 if there is one, 0 at the end. "." and ".." are not listed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_readdir(dir: *mut ubtrfs_dir, entry: *mut ubtrfs_dirent) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let (dir, mut place) = unsafe { (handle_alone(dir)?, place(entry)?) };
        let Some(entry) = dir.entries.next().transpose()? else {
            return Ok(0);
        };
        let name = CString::new(entry.file_name().into_vec());
        dir.name = name.map_err(|_| Failure::new(libc::EUCLEAN, "a name holds a NUL"))?;
        place.put(ubtrfs_dirent {
            name: dir.name.as_ptr(),
            ino: entry.ino(),
            mode: mode_of(entry.file_type()),
            is_subvolume: entry.is_subvolume(),
        });
        Ok(1)
    })
}

/// Frees a directory. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_closedir(dir: *mut ubtrfs_dir) {
    status(|| {
        // SAFETY: see the head of the header.
        drop(unsafe { take_back(dir) });
        Ok(())
    });
}

//! Open files.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::fs::FileExt;

use ubtrfs::{File, OpenOptions};

use crate::arguments::{buffer, bytes, handle, handle_place, path, place, take_back};
use crate::failure::{Failure, Result, size, status};
use crate::metadata::ubtrfs_stat;
use crate::subvolume::ubtrfs_subvolume;

/// An open file.
#[derive(Debug)]
pub struct ubtrfs_file {
    file: File,
}

/// Flags of open(2) that have no effect here.
const IGNORED: c_int = libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOCTTY;

fn options(flags: c_int, mode: u32) -> Result<OpenOptions> {
    let has = |flag| flags & flag != 0;
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Failure::invalid("access mode of flags")),
    };
    let known = libc::O_ACCMODE
        | libc::O_APPEND
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_NOFOLLOW
        | libc::O_TRUNC
        | IGNORED;
    if flags & !known != 0 {
        return Err(Failure::invalid("unknown flags"));
    }
    if has(libc::O_APPEND) && !writes {
        return Err(Failure::invalid("O_APPEND without writing"));
    }
    Ok(OpenOptions::new()
        .read(reads)
        .write(writes)
        .append(has(libc::O_APPEND))
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .no_follow(has(libc::O_NOFOLLOW))
        .mode(mode))
}

/// Opens a file, with the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, and optionally O_APPEND, O_CREAT, O_EXCL,
/// O_NOFOLLOW and O_TRUNC. All optional flags except O_NOFOLLOW need write access, and O_TRUNC excludes O_APPEND. A new
/// file gets the permissions in `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open(
    subvolume: *const ubtrfs_subvolume,
    at: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut ubtrfs_file,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, of, at) = unsafe { (handle_place(file)?, handle(subvolume)?, path(at)?) };
        let file = of.subvolume.open_with(at, &options(flags, mode)?)?;
        opened.give(ubtrfs_file { file });
        Ok(())
    })
}

/// Frees an open file. Written data stays in the volume, which commits it. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_close(file: *mut ubtrfs_file) {
    status(|| {
        // SAFETY: see the head of the header.
        drop(unsafe { take_back(file) });
        Ok(())
    });
}

/// Reads from an offset. Returns the number of bytes read, which is less than `buf_size` only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_pread(
    file: *const ubtrfs_file,
    buf: *mut c_void,
    buf_size: usize,
    offset: u64,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, buf) = unsafe { (handle(file)?, buffer(buf, buf_size)?) };
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(filled as u64);
            match of.file.read_at(rest, at)? {
                0 => break,
                len => filled += len,
            }
        }
        Ok(filled)
    })
}

/// Writes all bytes at an offset, or at the end if the file was opened with O_APPEND. Returns the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_pwrite(
    file: *const ubtrfs_file,
    data: *const c_void,
    data_size: usize,
    offset: u64,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (of, data) = unsafe { (handle(file)?, bytes(data, data_size)?) };
        of.file.write_all_at(data, offset)?;
        Ok(data.len())
    })
}

/// Truncates the file, or extends it with zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_truncate(file: *const ubtrfs_file, size_bytes: u64) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let of = unsafe { handle(file)? };
        Ok(of.file.set_len(size_bytes)?)
    })
}

/// Makes the file durable: content and attributes, and its name if it is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_fsync(file: *const ubtrfs_file) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let of = unsafe { handle(file)? };
        Ok(of.file.sync_all()?)
    })
}

/// Makes the content durable, and only the attributes that reading it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_fdatasync(file: *const ubtrfs_file) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let of = unsafe { handle(file)? };
        Ok(of.file.sync_data()?)
    })
}

/// Reads the attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_fstat(file: *const ubtrfs_file, stat: *mut ubtrfs_stat) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, mut stat) = unsafe { (handle(file)?, place(stat)?) };
        stat.put(of.file.metadata()?.into());
        Ok(())
    })
}

/// Reserves space, punches a hole or zeroes a range, like fallocate(2). `mode` is 0, FALLOC_FL_PUNCH_HOLE |
/// FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_fallocate(
    file: *const ubtrfs_file,
    mode: c_int,
    offset: u64,
    size_bytes: u64,
) -> c_int {
    const PUNCH_HOLE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    status(|| {
        // SAFETY: see the head of the header.
        let of = unsafe { handle(file)? };
        let done = match mode {
            0 => of.file.allocate(offset, size_bytes),
            PUNCH_HOLE => of.file.punch_hole(offset, size_bytes),
            libc::FALLOC_FL_ZERO_RANGE => of.file.zero_range(offset, size_bytes),
            _ => return Err(Failure::invalid("unknown mode")),
        };
        Ok(done?)
    })
}

/// Finds data or a hole at or after an offset, like lseek(2). `whence` is SEEK_DATA or SEEK_HOLE. Returns the offset,
/// or -ENXIO if nothing is found.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_lseek(file: *const ubtrfs_file, offset: u64, whence: c_int) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let of = unsafe { handle(file)? };
        let found = match whence {
            libc::SEEK_DATA => of.file.seek_data(offset)?,
            libc::SEEK_HOLE => of.file.seek_hole(offset)?,
            _ => return Err(Failure::invalid("unknown whence")),
        };
        let none = || Failure::new(libc::ENXIO, "no data follows the offset");
        let found = found.ok_or_else(none)?;
        Ok(usize::try_from(found).unwrap_or(usize::MAX))
    })
}

/// Makes a range of `to` share the data of a range of `from`, without copying. Both ranges must begin at block
/// boundaries, and end at one or at the end of `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_clone_range(
    from: *const ubtrfs_file,
    from_offset: u64,
    size_bytes: u64,
    to: *const ubtrfs_file,
    to_offset: u64,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (from, to) = unsafe { (handle(from)?, handle(to)?) };
        let (from, to) = (&from.file, &to.file);
        Ok(to.clone_range(from, from_offset, size_bytes, to_offset)?)
    })
}

//! Conversion of C arguments to Rust values, and of Rust results to C.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use crate::failure::{Failure, Result};

/// Returns a reference to the object of a handle. The null pointer is an error.
///
/// # Safety
///
/// The pointer is null, or points to a living object that nothing changes during the call.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { pointer.as_ref() };
    // C-2
    handle.ok_or_else(|| Failure::invalid("a handle is NULL"))
}

/// Returns an exclusive reference to the object of a handle. The null pointer is an error.
///
/// # Safety
///
/// The pointer is null, or points to a living object that nothing else accesses during the call.
pub(crate) unsafe fn handle_alone<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { pointer.as_mut() };
    handle.ok_or_else(|| Failure::invalid("a handle is NULL"))
}

/// Takes ownership of the box of a handle. Returns `None` if the handle is null.
///
/// # Safety
///
/// The pointer is null or was returned by [`Place::give`], and is not used again.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: `give` has created it from a box.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Returns a NUL-terminated string, or `None` if the pointer is null.
///
/// # Safety
///
/// The pointer is null, or points to a NUL-terminated string that nothing changes during the call.
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: guaranteed by the caller.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) });
    text.map(|text| OsStr::from_bytes(text.to_bytes()))
}

/// Returns a NUL-terminated string. The null pointer is an error.
///
/// # Safety
///
/// See [`optional_text`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a OsStr> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { optional_text(pointer) };
    text.ok_or_else(|| Failure::invalid("a text is NULL"))
}

/// Returns a NUL-terminated path. The null pointer is an error.
///
/// # Safety
///
/// See [`optional_text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path> {
    // SAFETY: guaranteed by the caller.
    Ok(Path::new(unsafe { text(pointer)? }))
}

/// Returns the paths of an array.
///
/// # Safety
///
/// The pointer is null, or points to `count` NUL-terminated strings that nothing changes during the call.
pub(crate) unsafe fn paths<'a>(
    pointer: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a Path>> {
    let pointers = match (count, pointer.is_null()) {
        (0, _) => &[][..],
        (_, true) => return Err(Failure::invalid("the paths are NULL")),
        // SAFETY: it is not null, and the caller guarantees the rest.
        (_, false) => unsafe { slice::from_raw_parts(pointer, count) },
    };
    // SAFETY: guaranteed by the caller.
    let paths = pointers.iter().map(|&pointer| unsafe { path(pointer) });
    paths.collect()
}

/// Converts text for C. It ends before the first NUL, and should not contain any.
pub(crate) fn text_of(text: impl AsRef<[u8]>) -> CString {
    let bytes = text.as_ref().iter().copied();
    let before: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    CString::new(before).unwrap_or_default()
}

/// Duplicates a file descriptor of the caller.
///
/// # Safety
///
/// The descriptor stays open until the function returns, or is negative.
pub(crate) unsafe fn file_of(fd: c_int) -> Result<File> {
    if fd < 0 {
        return Err(Failure::new(libc::EBADF, "no file descriptor"));
    }
    // SAFETY: it is not negative, and the caller guarantees the rest.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

fn check_len(is_null: bool, len: usize) -> Result<()> {
    match (is_null, isize::try_from(len)) {
        (_, Err(_)) => Err(Failure::invalid("a size is beyond the memory")),
        (true, Ok(1..)) => Err(Failure::invalid("a buffer is NULL")),
        _ => Ok(()),
    }
}

/// Returns the bytes to read. The pointer may be null if `len` is 0.
///
/// # Safety
///
/// The pointer is null, or points to `len` bytes that nothing changes during the call.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8]> {
    check_len(pointer.is_null(), len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: it is not null, and the caller guarantees the rest.
        _ => Ok(unsafe { slice::from_raw_parts(pointer.cast(), len) }),
    }
}

/// Returns a buffer to fill. The pointer may be null if `len` is 0.
///
/// # Safety
///
/// The pointer is null, or points to `len` bytes that nothing else accesses during the call.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    check_len(pointer.is_null(), len)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: it is not null, and the caller guarantees the rest. Any byte is a value.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), len) }),
    }
}

/// Copies all of `value`, and returns its size. An empty buffer requests only the size.
pub(crate) fn copy_whole(value: &[u8], buffer: &mut [u8]) -> Result<usize> {
    if !buffer.is_empty() {
        let place = buffer.get_mut(..value.len()).ok_or_else(|| {
            let message = format!("the buffer is too small for {} bytes", value.len());
            Failure::new(libc::ERANGE, message)
        })?;
        place.copy_from_slice(value);
    }
    Ok(value.len())
}

/// Memory for a result, which may be uninitialised.
pub(crate) struct Place<'a, T>(&'a mut MaybeUninit<T>);

/// Returns the memory for a result.
///
/// # Safety
///
/// The pointer is null, or points to memory for a `T` that nothing else accesses during the call.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<Place<'a, T>> {
    // SAFETY: guaranteed by the caller; uninitialised memory is a valid `MaybeUninit`.
    let place = unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() };
    place
        .map(Place)
        .ok_or_else(|| Failure::invalid("a place for a result is NULL"))
}

/// Returns the memory for a handle, and stores null in it.
///
/// # Safety
///
/// See [`place`].
pub(crate) unsafe fn handle_place<'a, T>(pointer: *mut *mut T) -> Result<Place<'a, *mut T>> {
    // SAFETY: guaranteed by the caller.
    let mut place = unsafe { place(pointer)? };
    place.put(ptr::null_mut());
    Ok(place)
}

/// Returns the memory for a handle that the caller may not want, or `None` if the pointer is null.
///
/// # Safety
///
/// See [`place`].
pub(crate) unsafe fn optional_place<'a, T>(pointer: *mut *mut T) -> Option<Place<'a, *mut T>> {
    // SAFETY: guaranteed by the caller.
    unsafe { handle_place(pointer) }.ok()
}

impl<T> Place<'_, T> {
    pub(crate) fn put(&mut self, value: T) {
        self.0.write(value);
    }
}

impl<T> Place<'_, *mut T> {
    /// Passes ownership of a handle to C, until [`take_back`].
    pub(crate) fn give(mut self, value: T) {
        self.put(Box::into_raw(Box::new(value)));
    }
}

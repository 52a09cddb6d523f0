//! Arguments of C as values of Rust, and results of Rust at places of C.

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
/// The pointer is null or of a living object that nothing changes meanwhile.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller's.
    let handle = unsafe { pointer.as_ref() };
    // C-2
    handle.ok_or_else(|| Failure::invalid("a handle is NULL"))
}

/// Returns an exclusive reference to the object of a handle, which the function has alone. The null pointer is an
/// error.
///
/// # Safety
///
/// The pointer is null or of a living object that nothing else looks at meanwhile.
pub(crate) unsafe fn handle_alone<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's.
    let handle = unsafe { pointer.as_mut() };
    handle.ok_or_else(|| Failure::invalid("a handle is NULL"))
}

/// Takes back the box of a handle, which is then dropped. Returns None if the handle is null.
///
/// # Safety
///
/// The pointer is null or was given by [`Place::give`], and is not used again.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: `give` has it from a box.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Returns text with a NUL at its end; None if the pointer is null.
///
/// # Safety
///
/// The pointer is null or of bytes with a NUL, which nothing changes meanwhile.
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: the caller's.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) });
    text.map(|text| OsStr::from_bytes(text.to_bytes()))
}

/// Returns text with a NUL at its end. The null pointer is an error.
///
/// # Safety
///
/// As [`optional_text`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a OsStr> {
    // SAFETY: the caller's.
    let text = unsafe { optional_text(pointer) };
    text.ok_or_else(|| Failure::invalid("a text is NULL"))
}

/// Returns a path with a NUL at its end. The null pointer is an error.
///
/// # Safety
///
/// As [`optional_text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's.
    Ok(Path::new(unsafe { text(pointer)? }))
}

/// Returns the paths of an array.
///
/// # Safety
///
/// The pointer is null or of so many texts with a NUL, which nothing changes meanwhile.
pub(crate) unsafe fn paths<'a>(
    pointer: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a Path>> {
    let pointers = match (count, pointer.is_null()) {
        (0, _) => &[][..],
        (_, true) => return Err(Failure::invalid("the paths are NULL")),
        // SAFETY: it is not null, and the rest is the caller's.
        (_, false) => unsafe { slice::from_raw_parts(pointer, count) },
    };
    // SAFETY: the caller's.
    let paths = pointers.iter().map(|&pointer| unsafe { path(pointer) });
    paths.collect()
}

/// Converts text for C. It ends before the first NUL, of which it should have none.
pub(crate) fn text_of(text: impl AsRef<[u8]>) -> CString {
    let bytes = text.as_ref().iter().copied();
    let before: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    CString::new(before).unwrap_or_default()
}

/// Returns another handle of the file that a descriptor of the caller is open for.
///
/// # Safety
///
/// The descriptor is open until the function returns, or is none.
pub(crate) unsafe fn file_of(fd: c_int) -> Result<File> {
    if fd < 0 {
        return Err(Failure::new(libc::EBADF, "no file descriptor"));
    }
    // SAFETY: it is not negative, and the rest is the caller's.
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

/// Returns bytes to read. The pointer may be null if there are none.
///
/// # Safety
///
/// The pointer is null or of so many bytes, which nothing changes meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8]> {
    check_len(pointer.is_null(), len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: it is not null, and the rest is the caller's.
        _ => Ok(unsafe { slice::from_raw_parts(pointer.cast(), len) }),
    }
}

/// Returns a buffer to fill. The pointer may be null if the buffer has no bytes.
///
/// # Safety
///
/// The pointer is null or of so many bytes, which nothing else looks at meanwhile.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    check_len(pointer.is_null(), len)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: it is not null, and the rest is the caller's. Any byte is a value.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), len) }),
    }
}

/// Copies all of `value`, and returns its size. An empty buffer asks for the size alone.
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

/// A place for a result, which may be uninitialised.
pub(crate) struct Place<'a, T>(&'a mut MaybeUninit<T>);

/// Returns the place of a result.
///
/// # Safety
///
/// The pointer is null or of a place for a value that nothing else looks at meanwhile.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<Place<'a, T>> {
    // SAFETY: the caller's; a place without a value is one of `MaybeUninit`.
    let place = unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() };
    place
        .map(Place)
        .ok_or_else(|| Failure::invalid("a place for a result is NULL"))
}

/// Returns the place of a handle, which is null until there is one.
///
/// # Safety
///
/// As [`place`].
pub(crate) unsafe fn handle_place<'a, T>(pointer: *mut *mut T) -> Result<Place<'a, *mut T>> {
    // SAFETY: the caller's.
    let mut place = unsafe { place(pointer)? };
    place.put(ptr::null_mut());
    Ok(place)
}

/// Returns the place of a handle that the caller may not want; None if the pointer is null.
///
/// # Safety
///
/// As [`place`].
pub(crate) unsafe fn optional_place<'a, T>(pointer: *mut *mut T) -> Option<Place<'a, *mut T>> {
    // SAFETY: the caller's.
    unsafe { handle_place(pointer) }.ok()
}

impl<T> Place<'_, T> {
    pub(crate) fn put(&mut self, value: T) {
        self.0.write(value);
    }
}

impl<T> Place<'_, *mut T> {
    /// Gives a handle to C, until [`take_back`].
    pub(crate) fn give(mut self, value: T) {
        self.put(Box::into_raw(Box::new(value)));
    }
}

//! Errors of the library as `OSError`; Python chooses the subclass by the errno. A closed volume is a `ValueError`, as
//! for a file object of Python.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;

use crate::handle::closed;

pub(crate) fn failed(error: &ubtrfs::Error) -> PyErr {
    failed_with(error, strerror(error))
}

/// Creates the exception of an error, always with the library's text.
pub(crate) fn failed_in_words(error: &ubtrfs::Error) -> PyErr {
    failed_with(error, error.to_string())
}

/// Creates the exception of a volume that could not be created. If space is insufficient, the text names the reason.
pub(crate) fn failed_to_make(error: &ubtrfs::Error) -> PyErr {
    let text = match error.kind() {
        ErrorKind::StorageFull => error.reason().to_string(),
        _ => strerror(error),
    };
    failed_with(error, text)
}

fn failed_with(error: &ubtrfs::Error, strerror: String) -> PyErr {
    // A thread may close the volume after another has taken the value out of its handle.
    if error.is_closed() {
        return closed();
    }
    let text = |path: &Path| path.as_os_str().to_owned();
    let errno = error.errno();
    let none: Option<OsString> = None;
    match (error.path().map(text), error.to().map(text)) {
        (Some(path), Some(to)) => PyOSError::new_err((errno, strerror, path, none, to)),
        (Some(path), None) => PyOSError::new_err((errno, strerror, path)),
        (None, _) => PyOSError::new_err((errno, strerror)),
    }
}

/// Returns Python's text for the errno, or the library's text if that is more specific.
fn strerror(error: &ubtrfs::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::StorageFull => system_text(&io::Error::from_raw_os_error(error.errno())),
        _ => error.to_string(),
    }
}

/// Returns the text of an error without its number.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Creates the exception of an errno at a path of a volume.
pub(crate) fn failed_as(errno: i32, path: &Path) -> PyErr {
    let text = system_text(&io::Error::from_raw_os_error(errno));
    PyOSError::new_err((errno, text, path.as_os_str().to_owned()))
}

/// Converts an error of a file of the host to an exception.
pub(crate) fn failed_host(error: &io::Error, path: &Path) -> PyErr {
    let path = path.as_os_str().to_owned();
    PyOSError::new_err((error.raw_os_error(), system_text(error), path))
}

/// Converts an error of a file's `std::io` methods to an exception. It wraps an error of the library.
pub(crate) fn failed_io(error: io::Error) -> PyErr {
    match error.downcast::<ubtrfs::Error>() {
        Ok(error) => failed(&error),
        Err(error) => error.into(),
    }
}

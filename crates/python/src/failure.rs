//! Errors of the library as `OSError`, of which Python chooses the subclass by the errno.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;

pub(crate) fn failed(error: &ubtrfs::Error) -> PyErr {
    let text = |path: &Path| path.as_os_str().to_owned();
    let (errno, strerror) = (error.errno(), strerror(error));
    let none: Option<OsString> = None;
    match (error.path().map(text), error.to().map(text)) {
        (Some(path), Some(to)) => PyOSError::new_err((errno, strerror, path, none, to)),
        (Some(path), None) => PyOSError::new_err((errno, strerror, path)),
        (None, _) => PyOSError::new_err((errno, strerror)),
    }
}

/// The text that Python has for the errno. Where that says too little, the library's.
fn strerror(error: &ubtrfs::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::StorageFull => {
            let text = io::Error::from_raw_os_error(error.errno()).to_string();
            let end = text.find(" (os error").unwrap_or(text.len());
            text[..end].to_owned()
        }
        _ => error.to_string(),
    }
}

/// An error of a file's `std::io` methods, which hold one of the library.
pub(crate) fn failed_io(error: io::Error) -> PyErr {
    match error.downcast::<ubtrfs::Error>() {
        Ok(error) => failed(&error),
        Err(error) => error.into(),
    }
}

//! Python file objects as readers and writers.

use std::io::{self, Read, Write};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::failed;

/// A file object, and its exception. After an exception it is not called again.
pub(crate) struct Stream {
    object: Py<PyAny>,
    raised: Option<PyErr>,
}

impl Stream {
    pub(crate) fn new(object: Py<PyAny>) -> Stream {
        Stream {
            object,
            raised: None,
        }
    }

    /// Returns the outcome of work with the stream. An exception of the stream takes precedence over the error that it
    /// caused.
    pub(crate) fn outcome<T>(self, done: ubtrfs::Result<T>) -> PyResult<T> {
        match (done, self.raised) {
            (Ok(value), _) => Ok(value),
            (Err(_), Some(raised)) => Err(raised),
            (Err(error), None) => Err(failed(&error)),
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        if let Some(raised) = &self.raised {
            return Err(io::Error::other(raised.to_string()));
        }
        let called = Python::attach(|py| {
            // A file object that is not written in Python does not run signal handlers itself.
            py.check_signals()?;
            call(self.object.bind(py))
        });
        called.map_err(|raised| {
            let error = io::Error::other(raised.to_string());
            self.raised = Some(raised);
            error
        })
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.call(|object| {
            let data = object.call_method1("read", (buf.len(),))?;
            let data: &[u8] = data.extract()?;
            let (len, most) = (data.len(), buf.len());
            let place = buf.get_mut(..len).ok_or_else(|| {
                PyOSError::new_err(format!("read() returned {len} bytes of at most {most}"))
            })?;
            place.copy_from_slice(data);
            Ok(len)
        })
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.call(|object| {
            let data = PyBytes::new(object.py(), buf);
            let written: Option<usize> = object.call_method1("write", (data,))?.extract()?;
            // Objects that write everything may return None.
            match written.unwrap_or(buf.len()) {
                len if len > buf.len() => {
                    let most = buf.len();
                    let message = format!("write() took {len} bytes of {most}");
                    Err(PyOSError::new_err(message))
                }
                len => Ok(len),
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

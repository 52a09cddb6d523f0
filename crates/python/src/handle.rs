//! A handle that can be closed while other threads use it.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Creates the exception of a call on a handle or a volume that is closed.
pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("operation on a closed volume or file")
}

/// A value until it is closed. The lock is held only briefly, so a thread may take it while it holds the GIL.
#[derive(Debug)]
pub(crate) struct Handle<T: Send> {
    value: Mutex<Option<T>>,
}

impl<T: Send> Drop for Handle<T> {
    /// Drops the value without the GIL. Dropping a file may wait for a group, whose work needs the GIL.
    fn drop(&mut self) {
        let value = self.value.get_mut();
        let value = value.unwrap_or_else(PoisonError::into_inner).take();
        if value.is_some() {
            // An interpreter that is shutting down runs no group: then the value is dropped with the closure.
            Python::try_attach(|py| py.detach(|| drop(value)));
        }
    }
}

impl<T: Clone + Send> Handle<T> {
    pub(crate) fn new(value: T) -> Handle<T> {
        Handle {
            value: Mutex::new(Some(value)),
        }
    }

    /// Returns the value, which the caller can still use after the handle is closed.
    pub(crate) fn get(&self) -> PyResult<T> {
        // The value is intact even after a panic.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let value = value.as_ref().cloned();
        value.ok_or_else(closed)
    }

    /// Takes the value out.
    pub(crate) fn take(&self) -> Option<T> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.take()
    }
}

//! Open files, read and written at offsets.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{failed, failed_io};
use crate::handle::Handle;

#[pyclass(frozen, weakref, module = "ubtrfs._ubtrfs")]
#[derive(Debug)]
pub(crate) struct File {
    handle: Handle<Arc<ubtrfs::File>>,
}

impl File {
    pub(crate) fn new(file: ubtrfs::File) -> File {
        let handle = Handle::new(Arc::new(file));
        File { handle }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&ubtrfs::File) -> ubtrfs::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.handle.get()?;
        let done = py.detach(move || work(&file));
        done.map_err(|error| failed(&error))
    }
}

/// Reads into a buffer until it is full or the file ends. Returns how many bytes there were.
fn fill(file: &ubtrfs::File, data: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64))? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}

#[pymethods]
impl File {
    fn close(&self, py: Python<'_>) {
        let file = self.handle.take();
        py.detach(move || drop(file));
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.handle.get()?;
        // No more than there is, whatever is asked for.
        let (file, left) = py.detach(move || {
            let left = file.metadata().map(|of| of.len().saturating_sub(offset));
            (file, left)
        });
        let left = left.map_err(|error| failed(&error))?;
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        if size as u64 > ubtrfs::memory_limit() {
            let message = format!("{size} bytes are more than memory has");
            return Err(PyMemoryError::new_err(message));
        }
        let mut filled = 0;
        // A `MemoryError` if there is not so much.
        let data = PyBytes::new_with(py, size, |data| {
            let read = py.detach(|| fill(&file, data, offset));
            filled = read.map_err(failed_io)?;
            Ok(())
        });
        py.detach(move || drop(file));
        let data = data?;
        match filled == size {
            true => Ok(data),
            // Another thread has cut the file meanwhile.
            false => Ok(PyBytes::new(py, &data.as_bytes()[..filled])),
        }
    }

    fn write(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<()> {
        let file = self.handle.get()?;
        let written = py.detach(move || file.write_all_at(data, offset));
        written.map_err(failed_io)
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |file| Ok(file.metadata()?.len()))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.run(py, |file| file.set_len(size))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, ubtrfs::File::sync_all)
    }
}

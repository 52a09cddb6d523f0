//! Open files, read and written at offsets.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{failed, failed_io};
use crate::handle::Handle;

/// The number of bytes read between two checks for signals.
const PART_BYTES: usize = 16 << 20;

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

/// Reads up to the requested size, or to the end of the file. Raises `MemoryError` if the memory cannot be allocated.
fn read<'py>(
    py: Python<'py>,
    file: &ubtrfs::File,
    size: usize,
    offset: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let left = py.detach(|| Ok(file.metadata()?.len().saturating_sub(offset)));
    let left = left.map_err(|error| failed(&error))?;
    let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
    if size as u64 > ubtrfs::memory_limit() {
        let message = format!("{size} bytes are more than memory has");
        return Err(PyMemoryError::new_err(message));
    }
    let mut filled = 0;
    let data = PyBytes::new_with(py, size, |data| {
        filled = fill(py, file, data, offset)?;
        Ok(())
    })?;
    if filled == size {
        Ok(data)
    } else {
        // Another thread has truncated the file in between.
        PyBytes::new_with(py, filled, |short| {
            short.copy_from_slice(&data.as_bytes()[..filled]);
            Ok(())
        })
    }
}

/// Reads into a buffer until it is full or the file ends, and returns the number of bytes. Signal handlers run between
/// two parts.
fn fill(py: Python<'_>, file: &ubtrfs::File, data: &mut [u8], offset: u64) -> PyResult<usize> {
    let mut filled = 0;
    while filled < data.len() {
        let end = data.len().min(filled.saturating_add(PART_BYTES));
        let part = &mut data[filled..end];
        let read = py.detach(|| file.read_at(part, offset.saturating_add(filled as u64)));
        match read.map_err(failed_io)? {
            0 => break,
            len => filled += len,
        }
        py.check_signals()?;
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
        let data = read(py, &file, size, offset);
        py.detach(move || drop(file));
        data
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

    fn allocate(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        self.run(py, |file| file.allocate(offset, size))
    }

    fn punch_hole(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        self.run(py, |file| file.punch_hole(offset, size))
    }

    fn seek_data(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        self.run(py, |file| file.seek_data(offset))
    }

    fn seek_hole(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        self.run(py, |file| file.seek_hole(offset))
    }

    fn clone_range(
        &self,
        py: Python<'_>,
        source: PyRef<'_, File>,
        source_offset: u64,
        size: u64,
        offset: u64,
    ) -> PyResult<()> {
        let source = source.handle.get()?;
        self.run(py, |file| {
            let cloned = file.clone_range(&source, source_offset, size, offset);
            drop(source);
            cloned
        })
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, ubtrfs::File::sync_all)
    }
}

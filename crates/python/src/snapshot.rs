//! Sending, receiving and comparing read-only subvolumes.

use std::io::BufReader;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubtrfs::{ChangeKind, ReceiveOptions, SendOptions, Snapshot};

use crate::failure::failed;
use crate::handle::Handle;
use crate::options::{Named, with_named};
use crate::signals::Signals;
use crate::stream::Stream;
use crate::subvolume::{Subvolume, bytes_of, path_of};

/// The size of reads from a file object.
const BUFFER_BYTES: usize = 256 << 10;
/// The number of changes that are passed to Python at a time.
const BATCH: usize = 64;

/// Kind, path, path before a rename.
type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the arguments of the Python function"
)]
pub(crate) fn send(
    tree: &Subvolume,
    py: Python<'_>,
    out: Py<PyAny>,
    parent: Option<PyRef<'_, Subvolume>>,
    clone_sources: Vec<PyRef<'_, Subvolume>>,
    compressed: bool,
    no_data: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let of = tree.handle().get()?;
    let parent = parent.map(|parent| parent.handle().get()).transpose()?;
    let sources = clone_sources.iter().map(|source| source.handle().get());
    let sources = sources.collect::<PyResult<Vec<_>>>()?;
    let mut stream = Stream::new(out);
    let mut signals = Signals::new(progress);
    let (out, observer) = (&mut stream, &mut signals);
    // The handles are dropped here, without the GIL: the last handle of a volume closes it.
    let sent = py.detach(move || {
        let snapshot = Snapshot::open(&of)?;
        let parent = parent.as_ref().map(Snapshot::open).transpose()?;
        let sources = sources.iter().map(Snapshot::open);
        let sources = sources.collect::<ubtrfs::Result<Vec<_>>>()?;
        let mut options = SendOptions::new().compressed(compressed).no_data(no_data);
        if let Some(parent) = &parent {
            options = options.parent(parent);
        }
        for source in &sources {
            options = options.clone_source(source);
        }
        snapshot.send(&options, out, observer)
    });
    signals.take_raised()?;
    stream.outcome(sent)
}

#[pyfunction]
pub(crate) fn receive<'py>(
    tree: &Subvolume,
    py: Python<'py>,
    dir: &[u8],
    stream: Py<PyAny>,
    options: Named,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let of = tree.handle().get()?;
    let mut stream = Stream::new(stream);
    let mut signals = Signals::new(progress);
    let reader = BufReader::with_capacity(BUFFER_BYTES, &mut stream);
    let observer = &mut signals;
    let options = with_named(ReceiveOptions::new(), options, ReceiveOptions::set)?;
    let received = py.detach(move || of.receive(path_of(dir), reader, &options, observer));
    signals.take_raised()?;
    let names = stream.outcome(received)?.into_iter();
    Ok(names
        .map(|name| PyBytes::new(py, &bytes_of(name)))
        .collect())
}

#[pyfunction]
pub(crate) fn changes_since(
    tree: &Subvolume,
    py: Python<'_>,
    old: PyRef<'_, Subvolume>,
) -> PyResult<Changes> {
    let old = old.handle().get()?;
    let changes = tree.run(py, |new| {
        Snapshot::open(new)?.changes_since(&Snapshot::open(&old)?)
    })?;
    Ok(Changes {
        handle: Handle::new(Arc::new(Mutex::new(changes))),
    })
}

/// The changes between two snapshots.
#[pyclass(frozen, weakref, module = "ubtrfs._ubtrfs")]
#[derive(Debug)]
pub(crate) struct Changes {
    handle: Handle<Arc<Mutex<ubtrfs::Changes>>>,
}

#[pymethods]
impl Changes {
    fn close(&self, py: Python<'_>) {
        let changes = self.handle.take();
        py.detach(move || drop(changes));
    }

    /// Returns the next changes, or an empty list at the end.
    fn next_changes(&self, py: Python<'_>) -> PyResult<Vec<Change>> {
        let changes = self.handle.get()?;
        let batch = py.detach(move || {
            let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = changes.by_ref().take(BATCH).map(|change| {
                let change = change?;
                let kind = match change.kind {
                    ChangeKind::Removed => "removed",
                    ChangeKind::Added => "added",
                    ChangeKind::Renamed => "renamed",
                    ChangeKind::Changed => "changed",
                };
                let path = bytes_of(change.path);
                Ok((kind, path, change.renamed_from.map(bytes_of)))
            });
            batch.collect::<ubtrfs::Result<Vec<Change>>>()
        });
        batch.map_err(|error| failed(&error))
    }
}

//! The native half of the Python package `ubtrfs`, on top of the crate `ubtrfs`.
//!
//! Paths and names are bytes here, and results plain tuples. `python/ubtrfs/__init__.py` converts them to Python's
//! types. The library runs without the GIL. A closed handle releases the volume, and further calls raise `ValueError`.
//!
//! Not here: buffers, text and stat results.

#![warn(clippy::disallowed_methods)]

mod check;
mod failure;
mod file;
mod handle;
mod options;
mod signals;
mod snapshot;
mod stream;
mod subvolume;
mod trees;
mod volume;

use pyo3::prelude::*;

/// The native half of the package.
#[pymodule]
fn _ubtrfs(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<volume::Volume>()?;
    module.add_class::<subvolume::Subvolume>()?;
    module.add_class::<subvolume::Listing>()?;
    module.add_class::<file::File>()?;
    module.add_class::<snapshot::Changes>()?;
    module.add_function(wrap_pyfunction!(check::check, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot::send, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot::receive, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot::changes_since, module)?)?;
    module.add_function(wrap_pyfunction!(trees::copy_tree, module)?)?;
    module.add_function(wrap_pyfunction!(trees::copy_from_host, module)?)?;
    module.add_function(wrap_pyfunction!(trees::copy_to_host, module)?)?;
    module.add_function(wrap_pyfunction!(trees::remove_tree, module)?)?;
    module.add_function(wrap_pyfunction!(trees::export_tar, module)?)?;
    module.add_function(wrap_pyfunction!(trees::import_tar, module)?)
}

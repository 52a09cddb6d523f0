//! The native half of the package `ubtrfs` for Python, over the crate `ubtrfs`.
//!
//! Paths and names are bytes here, and results plain tuples. `python/ubtrfs/__init__.py` gives them the shapes of Python.
//! Work is done without Python's lock. A closed handle lets go of the volume, and refuses with a `ValueError`.
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

//! Whole trees: copying within a volume, from and to the host, and tar archives.

use std::fs::File;

use pyo3::prelude::*;
use ubtrfs::{CopyOptions, ImportOptions, Problems, RemoveOptions};

use crate::failure::failed_host;
use crate::options::{Named, with_named};
use crate::signals::Signals;
use crate::stream::Stream;
use crate::subvolume::{Subvolume, bytes_of, path_of};

/// The number of problems, and the paths and messages of the first.
type Listed = (u64, Vec<(Vec<u8>, String)>);

fn listed(problems: &Problems) -> Listed {
    let listed = problems.listed().iter();
    let listed = listed.map(|of| (bytes_of(of.path.clone()), of.message.clone()));
    (problems.count(), listed.collect())
}

/// Runs work without the GIL, with a progress callable. The callable and signal handlers can end it.
fn observed(
    tree: &Subvolume,
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&ubtrfs::Subvolume, &mut Signals) -> ubtrfs::Result<()> + Send,
) -> PyResult<Listed> {
    let of = tree.handle().get()?;
    let mut signals = Signals::new(progress);
    let observer = &mut signals;
    let done = py.detach(move || work(&of, observer));
    let ((), problems) = signals.outcome(done)?;
    Ok(listed(&problems))
}

fn copy_options(named: Named) -> PyResult<CopyOptions> {
    with_named(CopyOptions::new(), named, CopyOptions::set)
}

#[pyfunction]
pub(crate) fn copy_tree(
    tree: &Subvolume,
    py: Python<'_>,
    from: &[u8],
    to: &[u8],
    options: Named,
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    let options = copy_options(options)?;
    observed(tree, py, progress, |of, signals| {
        of.copy_tree(path_of(from), of, path_of(to), &options, signals)
    })
}

#[pyfunction]
pub(crate) fn copy_from_host(
    tree: &Subvolume,
    py: Python<'_>,
    host: &[u8],
    to: &[u8],
    options: Named,
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    let options = copy_options(options)?;
    observed(tree, py, progress, |of, signals| {
        of.copy_from_host(path_of(host), path_of(to), &options, signals)
    })
}

#[pyfunction]
pub(crate) fn copy_to_host(
    tree: &Subvolume,
    py: Python<'_>,
    from: &[u8],
    host: &[u8],
    options: Named,
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    let options = copy_options(options)?;
    observed(tree, py, progress, |of, signals| {
        of.copy_to_host(path_of(from), path_of(host), &options, signals)
    })
}

#[pyfunction]
pub(crate) fn remove_tree(
    tree: &Subvolume,
    py: Python<'_>,
    path: &[u8],
    enter_subvolumes: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    observed(tree, py, progress, |of, signals| {
        let options = RemoveOptions::new().enter_subvolumes(enter_subvolumes);
        of.remove_tree(path_of(path), &options, signals)
    })
}

#[pyfunction]
pub(crate) fn export_tar(
    tree: &Subvolume,
    py: Python<'_>,
    path: &[u8],
    out: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    let of = tree.handle().get()?;
    let mut signals = Signals::new(progress);
    let mut stream = Stream::new(out);
    let (out, observer) = (&mut stream, &mut signals);
    let exported = py.detach(move || of.export_tar(path_of(path), out, observer));
    signals.take_raised()?;
    stream.outcome(exported)?;
    Ok(listed(&signals.problems()))
}

#[pyfunction]
pub(crate) fn import_tar(
    tree: &Subvolume,
    py: Python<'_>,
    archive: &[u8],
    dir: &[u8],
    progress: Option<Py<PyAny>>,
) -> PyResult<Listed> {
    let path = path_of(archive);
    let opened = py.detach(|| File::open(path));
    let archive = opened.map_err(|error| failed_host(&error, path))?;
    observed(tree, py, progress, |of, signals| {
        let options = ImportOptions::new();
        of.import_tar(archive, path_of(dir), &options, signals)
    })
}

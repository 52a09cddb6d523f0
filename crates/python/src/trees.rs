//! Whole trees: copied within a volume and from and to this machine, and as tar archives.

use std::fs::File;

use pyo3::prelude::*;
use ubtrfs::Problems;

use crate::failure::{failed, failed_host};
use crate::stream::Stream;
use crate::subvolume::{Subvolume, bytes_of, path_of};

/// How many problems there were, and the paths and messages of the first.
type Told = (u64, Vec<(Vec<u8>, String)>);

fn told(problems: &Problems) -> Told {
    let listed = problems.listed().iter().map(|problem| {
        let path = bytes_of(problem.path.as_os_str());
        (path, problem.message.clone())
    });
    (problems.count(), listed.collect())
}

#[pyfunction]
pub(crate) fn copy_tree(
    tree: &Subvolume,
    py: Python<'_>,
    from: &[u8],
    to: &[u8],
) -> PyResult<Told> {
    let problems = tree.run(py, |of| of.copy_tree(path_of(from), path_of(to)));
    Ok(told(&problems?))
}

#[pyfunction]
pub(crate) fn copy_from_host(
    tree: &Subvolume,
    py: Python<'_>,
    host: &[u8],
    to: &[u8],
) -> PyResult<Told> {
    let problems = tree.run(py, |of| of.copy_from_host(path_of(host), path_of(to)));
    Ok(told(&problems?))
}

#[pyfunction]
pub(crate) fn copy_to_host(
    tree: &Subvolume,
    py: Python<'_>,
    from: &[u8],
    host: &[u8],
) -> PyResult<Told> {
    let problems = tree.run(py, |of| of.copy_to_host(path_of(from), path_of(host)));
    Ok(told(&problems?))
}

#[pyfunction]
pub(crate) fn export_tar(
    tree: &Subvolume,
    py: Python<'_>,
    path: &[u8],
    out: Py<PyAny>,
) -> PyResult<Told> {
    let of = tree.handle().get()?;
    let mut stream = Stream::new(out);
    let out = &mut stream;
    let problems = py.detach(move || of.export_tar(path_of(path), out));
    Ok(told(&stream.outcome(problems)?))
}

#[pyfunction]
pub(crate) fn import_tar(
    tree: &Subvolume,
    py: Python<'_>,
    archive: &[u8],
    dir: &[u8],
) -> PyResult<Told> {
    let of = tree.handle().get()?;
    let problems = py.detach(move || -> PyResult<Problems> {
        let path = path_of(archive);
        let archive = File::open(path).map_err(|error| failed_host(&error, path))?;
        let unpacked = of.import_tar(archive, path_of(dir));
        unpacked.map_err(|error| failed(&error))
    });
    Ok(told(&problems?))
}

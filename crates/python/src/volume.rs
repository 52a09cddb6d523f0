//! Volumes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ubtrfs::{BlockGroupKind, Mkfs, Profile, TrimOptions};

use crate::failure::{failed, failed_in_words, failed_to_make};
use crate::handle::Handle;
use crate::options::{Named, builder_of, paths_of, with_named};
use crate::signals::Signals;
use crate::subvolume::{Subvolume, Time, bytes_of, time_of};

/// Id, path, UUIDs (own, parent, received), (read-only, deleted), generations (last, created), times (created,
/// changed).
type Info = (
    u64,
    Option<Vec<u8>>,
    ([u8; 16], Option<[u8; 16]>, Option<[u8; 16]>),
    (bool, bool),
    (u64, u64),
    (Time, Time),
);

/// Total, free, available and reserved bytes; block groups as kind, profile, total and used bytes.
type Space = (
    (u64, u64, u64, u64),
    Vec<(&'static str, Option<&'static str>, u64, u64)>,
);
/// Id, UUID, path, (total, allocated) bytes.
type Device = (u64, [u8; 16], Option<Vec<u8>>, (u64, u64));
/// The id of a device, and its counts of write, read, flush, corruption and generation errors.
type Errors = (u64, u64, u64, u64, u64, u64);

/// The minimum size of a sector, and so of a free extent.
const LEAST_SECTOR: u64 = 4096;

/// The reason why a group has no result.
enum Ended {
    Raised(PyErr),
    Failed(ubtrfs::Error),
}

impl From<ubtrfs::Error> for Ended {
    fn from(error: ubtrfs::Error) -> Ended {
        Ended::Failed(error)
    }
}

#[pyclass(frozen, weakref, module = "ubtrfs._ubtrfs")]
#[derive(Debug)]
pub(crate) struct Volume {
    handle: Handle<ubtrfs::Volume>,
}

impl Volume {
    fn opened(
        py: Python<'_>,
        open: impl FnOnce() -> ubtrfs::Result<ubtrfs::Volume> + Send,
    ) -> PyResult<Volume> {
        let volume = py.detach(open).map_err(|error| failed(&error))?;
        let handle = Handle::new(volume);
        Ok(Volume { handle })
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&ubtrfs::Volume) -> ubtrfs::Result<T> + Send,
    ) -> PyResult<T> {
        let volume = self.handle.get()?;
        let done = py.detach(move || work(&volume));
        done.map_err(|error| failed(&error))
    }
}

/// The options of a new volume: for creating it, for opening it, and the progress callable.
type NewVolume<'py> = (Named, Bound<'py, PyDict>, Option<Py<PyAny>>);

/// Creates a volume. An exception of the callable or a signal handler takes precedence over the error that it caused.
fn new_volume(
    py: Python<'_>,
    (making, opening, progress): NewVolume<'_>,
    failed: fn(&ubtrfs::Error) -> PyErr,
    make: impl FnOnce(ubtrfs::Builder) -> ubtrfs::Result<ubtrfs::Volume> + Send,
) -> PyResult<Volume> {
    let signals = Arc::new(Mutex::new(Signals::new(progress)));
    let mkfs = with_named(Mkfs::default(), making, Mkfs::set)?.observe(signals.clone());
    let builder = builder_of(&opening)?.mkfs(mkfs);
    if builder.is_read_only() {
        return Err(PyValueError::new_err("a new volume is for writing"));
    }
    let made = py.detach(|| make(builder));
    let mut signals = signals.lock().unwrap_or_else(PoisonError::into_inner);
    signals.take_raised()?;
    let handle = Handle::new(made.map_err(|error| failed(&error))?);
    Ok(Volume { handle })
}

#[pymethods]
impl Volume {
    #[staticmethod]
    fn create(
        py: Python<'_>,
        paths: Vec<Vec<u8>>,
        size: u64,
        options: NewVolume<'_>,
    ) -> PyResult<Volume> {
        let make = |builder: ubtrfs::Builder| builder.create(&paths_of(&paths), size);
        new_volume(py, options, failed_to_make, make)
    }

    #[staticmethod]
    fn format(
        py: Python<'_>,
        paths: Vec<Vec<u8>>,
        force: bool,
        options: NewVolume<'_>,
    ) -> PyResult<Volume> {
        let make = |builder: ubtrfs::Builder| builder.force(force).format(&paths_of(&paths));
        new_volume(py, options, failed_in_words, make)
    }

    #[staticmethod]
    fn in_memory(py: Python<'_>, size: u64, options: NewVolume<'_>) -> PyResult<Volume> {
        new_volume(py, options, failed_to_make, |builder| {
            builder.in_memory(size)
        })
    }

    #[staticmethod]
    fn open(py: Python<'_>, paths: Vec<Vec<u8>>, opening: &Bound<'_, PyDict>) -> PyResult<Volume> {
        let builder = builder_of(opening)?;
        Volume::opened(py, || builder.open(&paths_of(&paths)))
    }

    fn root(&self, py: Python<'_>) -> PyResult<Subvolume> {
        let root = self.run(py, |volume| Ok(volume.root().clone()));
        root.map(Subvolume::new)
    }

    fn subvolume_by_id(&self, py: Python<'_>, id: u64) -> PyResult<Subvolume> {
        let volume = self.handle.get()?;
        let subvolume = py.detach(move || volume.subvolume_by_id(id));
        let subvolume = subvolume.map_err(|error| failed_in_words(&error));
        subvolume.map(Subvolume::new)
    }

    fn default_subvolume(&self, py: Python<'_>) -> PyResult<Subvolume> {
        let subvolume = self.run(py, ubtrfs::Volume::default_subvolume);
        subvolume.map(Subvolume::new)
    }

    fn set_default_subvolume(
        &self,
        py: Python<'_>,
        subvolume: PyRef<'_, Subvolume>,
    ) -> PyResult<()> {
        let subvolume = subvolume.handle().get()?;
        self.run(py, |volume| {
            let set = volume.set_default_subvolume(&subvolume);
            drop(subvolume);
            set
        })
    }

    fn free_deleted_subvolumes(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, ubtrfs::Volume::free_deleted_subvolumes)
    }

    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let uuid = self.run(py, |volume| Ok(volume.uuid()))?;
        Ok(PyBytes::new(py, &uuid.0))
    }

    fn label<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let label = self.run(py, |volume| Ok(volume.label()))?;
        Ok(PyBytes::new(py, label.as_bytes()))
    }

    fn set_label(&self, py: Python<'_>, label: &[u8]) -> PyResult<()> {
        self.run(py, |volume| volume.set_label(OsStr::from_bytes(label)))
    }

    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |volume| Ok(volume.is_read_only()))
    }

    fn subvolumes(&self, py: Python<'_>) -> PyResult<Vec<Info>> {
        let all = self.run(py, ubtrfs::Volume::subvolumes)?.into_iter();
        let info = |of: ubtrfs::SubvolumeInfo| {
            let id = |uuid: ubtrfs::Uuid| uuid.0;
            (
                of.id,
                of.path.map(|path| bytes_of(path.into_os_string())),
                (
                    id(of.uuid),
                    of.parent_uuid.map(id),
                    of.received_uuid.map(id),
                ),
                (of.is_read_only, of.is_deleted),
                (of.generation, of.created_generation),
                (time_of(of.created), time_of(of.changed)),
            )
        };
        Ok(all.map(info).collect())
    }

    fn space(&self, py: Python<'_>) -> PyResult<Space> {
        let of = self.run(py, ubtrfs::Volume::space)?;
        let sums = (
            of.total_bytes,
            of.free_bytes,
            of.available_bytes,
            of.reserve_bytes,
        );
        let groups = of.block_groups.into_iter().map(|groups| {
            let kind = match groups.kind {
                BlockGroupKind::Data => "data",
                BlockGroupKind::Metadata => "metadata",
                BlockGroupKind::System => "system",
                BlockGroupKind::Mixed => "mixed",
            };
            let profile = groups.profile.map(Profile::name);
            (kind, profile, groups.total_bytes, groups.used_bytes)
        });
        Ok((sums, groups.collect()))
    }

    fn devices(&self, py: Python<'_>) -> PyResult<Vec<Device>> {
        let devices = self.run(py, |volume| Ok(volume.devices()))?.into_iter();
        let device = |of: ubtrfs::DeviceInfo| {
            let path = of.path.map(bytes_of);
            let bytes = (of.total_bytes, of.allocated_bytes);
            (of.id, of.uuid.0, path, bytes)
        };
        Ok(devices.map(device).collect())
    }

    fn device_errors(&self, py: Python<'_>) -> PyResult<Vec<Errors>> {
        let all = self.run(py, ubtrfs::Volume::device_errors)?.into_iter();
        let plain = all.map(|of| {
            (
                of.device_id,
                of.write_errors,
                of.read_errors,
                of.flush_errors,
                of.corruption_errors,
                of.generation_errors,
            )
        });
        Ok(plain.collect())
    }

    /// Returns the numbers of commits, logs and data flushes, then the bytes of data, metadata and logs.
    fn statistics(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64, u64)> {
        let of = self.run(py, |volume| Ok(volume.statistics()))?;
        Ok((
            of.commits,
            of.logs,
            of.data_flushes,
            of.data_bytes,
            of.metadata_bytes,
            of.log_bytes,
        ))
    }

    fn trim(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let mut signals = Signals::new(progress);
        let volume = self.handle.get()?;
        let observer = &mut signals;
        let trimmed = py.detach(move || {
            let options = TrimOptions::new().min_bytes(LEAST_SECTOR);
            volume.trim(&options, observer)
        });
        let (trimmed, _) = signals.outcome(trimmed)?;
        Ok(trimmed)
    }

    /// Calls `work` without arguments, and returns its result.
    fn group(&self, py: Python<'_>, work: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let volume = self.handle.get()?;
        let done = py.detach(move || {
            volume.group_with(|| Python::attach(|py| work.call0(py)).map_err(Ended::Raised))
        });
        done.map_err(|ended| match ended {
            Ended::Raised(raised) => raised,
            Ended::Failed(error) => failed(&error),
        })
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, ubtrfs::Volume::sync)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.handle.take();
        let closed = py.detach(move || match volume {
            Some(volume) if !volume.is_read_only() => volume.close(),
            _ => Ok(()),
        });
        closed.map_err(|error| failed(&error))
    }
}

//! Options for creating and opening volumes, from dictionaries.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ubtrfs::{Access, Builder, Compress, CsumType, FeatureSet, Mkfs, MkfsOptions, Profile, Uuid};

use crate::failure::failed;
use crate::subvolume::path_of;

/// Options for opening a volume.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub(crate) struct Opening {
    read_only: bool,
    as_committed: bool,
    degraded: bool,
    scan: Vec<Vec<u8>>,
    compress: Option<String>,
    cache_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    /// In seconds.
    commit_interval: Option<f64>,
    discard: bool,
}

/// Options for creating a volume.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Making {
    label: Vec<u8>,
    uuid: Option<[u8; 16]>,
    data: Option<String>,
    metadata: Option<String>,
    checksum: Option<String>,
    node_size: Option<u32>,
    sector_size: Option<u32>,
    features: Option<String>,
    rootdir: Option<Vec<u8>>,
    source_date_epoch: Option<u64>,
    subvolumes: Vec<Vec<u8>>,
    read_only_subvolumes: Vec<Vec<u8>>,
    root_owner: (u32, u32),
    shrink: bool,
    discard_before: bool,
}

pub(crate) fn paths_of(all: &[Vec<u8>]) -> Vec<PathBuf> {
    all.iter().map(|path| path_of(path).to_owned()).collect()
}

/// Parses the name of a value.
fn named<T>(
    name: Option<&String>,
    what: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> PyResult<Option<T>> {
    let unknown = |name| PyValueError::new_err(format!("unknown {what}: {name:?}"));
    name.map(|name| read(name).ok_or_else(|| unknown(name)))
        .transpose()
}

impl Opening {
    pub(crate) fn builder(&self) -> PyResult<Builder> {
        let interval = self.commit_interval.map(Duration::try_from_secs_f64);
        let interval = interval.transpose();
        let interval = interval.map_err(|error| PyValueError::new_err(error.to_string()))?;
        if interval.is_some_and(|interval| interval.is_zero()) {
            return Err(PyValueError::new_err("the commit interval is 0"));
        }
        let mut builder = ubtrfs::Volume::builder()
            .degraded(self.degraded)
            .scan(paths_of(&self.scan))
            .commit_interval(interval);
        if let Some(compress) = named(self.compress.as_ref(), "compression", Compress::from_name)? {
            builder = builder.compress(compress);
        }
        if let Some(bytes) = self.cache_bytes {
            builder = builder.cache_bytes(bytes);
        }
        if let Some(bytes) = self.memory_bytes {
            builder = builder.limit_memory(bytes);
        }
        if self.read_only {
            builder = builder.read_only();
        }
        if self.as_committed {
            builder = builder.as_committed();
        }
        if !self.discard {
            builder = builder.no_discard();
        }
        Ok(builder)
    }
}

impl Making {
    pub(crate) fn mkfs(&self) -> PyResult<Mkfs> {
        let mut features = FeatureSet::default();
        if let Some(list) = &self.features {
            features.apply_list(list).map_err(|error| failed(&error))?;
        }
        let profile = |name: &Option<String>| named(name.as_ref(), "profile", Profile::from_name);
        let default = MkfsOptions::default();
        let csum_type = named(self.checksum.as_ref(), "checksum", CsumType::from_name)?;
        let mut mkfs = Mkfs::new(MkfsOptions {
            label: self.label.clone(),
            data: profile(&self.data)?,
            metadata: profile(&self.metadata)?,
            nodesize: self.node_size,
            sectorsize: self.sector_size.unwrap_or(default.sectorsize),
            csum_type: csum_type.unwrap_or(default.csum_type),
            features,
            root_owner: self.root_owner,
        });
        if let Some(uuid) = self.uuid {
            mkfs = mkfs.uuid(Uuid(uuid));
        }
        if let Some(contents) = &self.rootdir {
            mkfs = mkfs.fill_from(path_of(contents));
        }
        if let Some(seconds) = self.source_date_epoch {
            let present = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            let present = present.ok_or_else(|| PyValueError::new_err("no such time"))?;
            mkfs = mkfs.repeatable(present);
        }
        for path in paths_of(&self.subvolumes) {
            mkfs = mkfs.make_subvolume(path, Access::Writable);
        }
        for path in paths_of(&self.read_only_subvolumes) {
            mkfs = mkfs.make_subvolume(path, Access::ReadOnly);
        }
        Ok(mkfs.shrink(self.shrink).discard(self.discard_before))
    }
}

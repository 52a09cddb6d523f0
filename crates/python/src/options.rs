//! Options for creating and opening volumes, from dictionaries.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ubtrfs::{
    Access, Builder, CsumType, FeatureSet, Mkfs, MkfsOptions, OPEN_OPTIONS, OpenOption, OptionKind,
    Profile, Uuid,
};

use crate::failure::failed;
use crate::subvolume::path_of;

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

/// Returns the texts of an option's value, which are set one after the other.
fn texts_of(kind: OptionKind, value: &Bound<'_, PyAny>) -> PyResult<Vec<OsString>> {
    let text = match kind {
        OptionKind::Paths => {
            let paths = value.extract::<Vec<Vec<u8>>>()?;
            return Ok(paths.into_iter().map(OsString::from_vec).collect());
        }
        OptionKind::Interval if value.is_none() => "never".to_owned(),
        OptionKind::Interval => value.extract::<f64>()?.to_string(),
        OptionKind::Flag => value.extract::<bool>()?.to_string(),
        // A name selects a mode.
        OptionKind::Discard => match value.extract::<bool>() {
            Ok(discard) => discard.to_string(),
            Err(_) => value.extract()?,
        },
        _ if value.is_none() => return Ok(Vec::new()),
        OptionKind::Bytes => value.extract::<u64>()?.to_string(),
        _ => value.extract()?,
    };
    Ok(vec![text.into()])
}

/// Returns a builder with the options of a dictionary.
pub(crate) fn builder_of(options: &Bound<'_, PyDict>) -> PyResult<Builder> {
    let invalid = |error: ubtrfs::Error| PyValueError::new_err(error.reason().to_string());
    let mut builder = ubtrfs::Volume::builder();
    for (name, value) in options {
        let name: String = name.extract()?;
        let option = OPEN_OPTIONS.iter().find(|option| option.name() == name);
        let kind = option.map(OpenOption::kind);
        let kind = kind.ok_or_else(|| PyTypeError::new_err(format!("unknown option {name:?}")))?;
        for text in texts_of(kind, &value)? {
            builder = builder.set(&name, text).map_err(invalid)?;
        }
    }
    Ok(builder)
}

impl Making {
    pub(crate) fn mkfs(&self) -> PyResult<Mkfs> {
        let mut features = FeatureSet::default();
        if let Some(list) = &self.features {
            let applied = features.apply_list(list);
            applied.map_err(|error| failed(&error.into()))?;
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

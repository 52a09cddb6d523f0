//! Options for creating and opening volumes, by their names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ubtrfs::{Builder, OPEN_OPTIONS, OpenOption, OptionKind};

use crate::subvolume::path_of;

/// Options as names and texts.
pub(crate) type Named = Vec<(String, Vec<u8>)>;

pub(crate) fn paths_of(all: &[Vec<u8>]) -> Vec<PathBuf> {
    all.iter().map(|path| path_of(path).to_owned()).collect()
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

/// Sets the named options.
pub(crate) fn with_named<T>(
    options: T,
    named: Named,
    set: impl Fn(T, &str, OsString) -> ubtrfs::Result<T>,
) -> PyResult<T> {
    let mut named = named.into_iter();
    named.try_fold(options, |options, (name, text)| {
        set(options, &name, OsString::from_vec(text)).map_err(invalid)
    })
}

fn invalid(error: ubtrfs::Error) -> PyErr {
    PyValueError::new_err(error.reason().to_string())
}

//! A fault and its place.

use std::fmt;

use ubtrfs_format::ids::{DevId, RootId};
use ubtrfs_format::key::Key;

use crate::fault::{Fault, Severity};

/// The location of an issue on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The id of the tree.
    pub tree: Option<RootId>,
    /// The key of the item.
    pub key: Option<Key>,
    /// The logical address of the tree block or extent.
    pub bytenr: Option<u64>,
    /// The device.
    pub devid: Option<DevId>,
}

impl Place {
    pub(crate) fn tree(tree: RootId) -> Place {
        Place {
            tree: Some(tree),
            ..Place::default()
        }
    }

    pub(crate) fn item(tree: RootId, key: Key) -> Place {
        Place {
            tree: Some(tree),
            key: Some(key),
            ..Place::default()
        }
    }

    pub(crate) fn bytenr(bytenr: u64) -> Place {
        Place {
            bytenr: Some(bytenr),
            ..Place::default()
        }
    }

    pub(crate) fn device(devid: DevId) -> Place {
        Place {
            devid: Some(devid),
            ..Place::default()
        }
    }

    pub(crate) fn at(self, bytenr: u64) -> Place {
        Place {
            bytenr: Some(bytenr),
            ..self
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            write!(f, "{before}{text}")?;
            before = ", ";
            Ok(())
        };
        if let Some(devid) = self.devid {
            part(f, format_args!("device {devid}"))?;
        }
        if let Some(tree) = self.tree {
            part(f, format_args!("tree {}", tree.0 as i64))?;
        }
        if let Some(key) = self.key {
            part(f, format_args!("key {key}"))?;
        }
        if let Some(bytenr) = self.bytenr {
            part(f, format_args!("bytenr {bytenr}"))?;
        }
        Ok(())
    }
}

/// A problem of a volume. Its text has number, name and location.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Issue {
    /// The location.
    pub at: Place,
    /// The problem alone.
    pub fault: Fault,
}

impl Issue {
    /// Returns the severity, which for some kinds depends on the numbers.
    pub fn severity(&self) -> Severity {
        self.fault.severity()
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.fault.code(), self.fault.name())?;
        if self.at != Place::default() {
            write!(f, "{}: ", self.at)?;
        }
        write!(f, "{}", self.fault)
    }
}

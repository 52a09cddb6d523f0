//! Why references cannot be changed as asked: the volume is damaged.

use ubtrfs_format::ids::Logical;
use ubtrfs_format::key::Key;

use crate::transaction::delayed_refs::{ExtentShape, RefKey};

/// What does not fit together about an extent and its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    #[error("extent at {bytenr} is {one} to some and {other} to others")]
    Shapes {
        bytenr: Logical,
        one: ExtentShape,
        other: ExtentShape,
    },
    #[error("extent at {bytenr} was given out twice")]
    MadeTwice { bytenr: Logical },
    #[error("{shape} at {bytenr} is new, but there is an item {key}")]
    Exists {
        bytenr: Logical,
        shape: ExtentShape,
        key: Key,
    },
    #[error("{shape} at {bytenr} has no item, but is referenced by {}", Referrer(.reference))]
    NoExtent {
        bytenr: Logical,
        shape: ExtentShape,
        reference: Option<RefKey>,
    },
    #[error("{shape} at {bytenr} is something else by its item {key}")]
    Unlike {
        bytenr: Logical,
        shape: ExtentShape,
        key: Key,
    },
    #[error("extent at {bytenr} loses {dropped} references from {reference}, but has {found}")]
    NoReference {
        bytenr: Logical,
        reference: RefKey,
        dropped: u64,
        found: u64,
    },
    #[error("tree block at {bytenr} would get a second reference from {reference}")]
    SecondReference { bytenr: Logical, reference: RefKey },
    #[error("extent at {bytenr} would have more references from {reference} than can be counted")]
    Overflow { bytenr: Logical, reference: RefKey },
    #[error("extent at {bytenr} has a count of {refs} references, which is not their sum")]
    Sum { bytenr: Logical, refs: u64 },
}

struct Referrer<'a>(&'a Option<RefKey>);

impl std::fmt::Display for Referrer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(key) => key.fmt(f),
            None => f.write_str("its children"),
        }
    }
}

//! Reasons why an LVM volume cannot be read.

use std::io;

/// A defect of a physical volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelProblem {
    #[error("its LVM metadata cannot be read: {0}")]
    Read(io::ErrorKind),
    #[error("the header of its LVM metadata is damaged")]
    Area,
    #[error("the checksum of its LVM metadata does not match")]
    Checksum,
    #[error("line {line} of its LVM metadata: {fault}")]
    Text { line: usize, fault: TextFault },
    #[error("its LVM metadata has no valid '{0}'")]
    Field(&'static str),
}

/// A defect of the text of LVM metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    #[error("a value is missing")]
    NoValue,
    #[error("a name is missing")]
    NoName,
    #[error("'=' or '{{' is missing")]
    NoAssignment,
    #[error("a bracket is not closed")]
    Open,
    #[error("a string is not closed")]
    OpenString,
    #[error("sections are nested too deep")]
    Depth,
    #[error("too many values")]
    TooMany,
}

/// Why a logical volume cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeProblem {
    #[error("physical volume {uuid} is missing")]
    Missing { uuid: String },
    #[error(
        "segments of type '{0}' are not read here: 'vgchange -ay --readonly' on Linux makes a device of the volume"
    )]
    Segment(String),
    #[error("its metadata has no valid '{0}'")]
    Field(&'static str),
    #[error("its segments leave a gap")]
    Gap,
}

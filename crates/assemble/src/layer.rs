//! A layer: a disk, or a device that is computed from other layers.

use std::fmt;
use std::io;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use crate::contents::Contents;
use crate::lvm::problem::{LabelProblem, VolumeProblem};
use crate::md::problem::{ArrayNote, ArrayProblem, LeftOut, SuperblockProblem};

/// The index of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub usize);

/// The kind of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A block device or an image.
    Disk,
    Partition {
        number: u32,
        /// May be empty.
        label: String,
    },
    Array {
        /// The number in md; -1 is linear.
        level: i32,
        members: usize,
        /// 0 for arrays without chunks.
        chunk_bytes: u64,
    },
    LogicalVolume,
}

impl LayerKind {
    /// Returns the name of the driver that Linux has for it.
    pub fn driver(&self) -> &'static str {
        match self {
            LayerKind::Disk => "disk",
            LayerKind::Partition { .. } => "partition",
            LayerKind::Array { .. } => "md",
            LayerKind::LogicalVolume => "LVM",
        }
    }
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayerKind::Disk => f.write_str("disk"),
            LayerKind::Partition { .. } => f.write_str("partition"),
            LayerKind::Array { level: -1, .. } => f.write_str("md linear"),
            LayerKind::Array { level, .. } => write!(f, "md RAID{level}"),
            LayerKind::LogicalVolume => f.write_str("LVM volume"),
        }
    }
}

/// A part of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    Present(LayerId),
    Missing(MissingPart),
    LeftOut(LayerId, LeftOut),
}

/// A part of a layer that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// The member of an array with this role.
    Member(usize),
    /// The physical volume with this UUID, without dashes.
    PhysicalVolume(String),
}

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingPart::Member(role) => write!(f, "member {role}"),
            MissingPart::PhysicalVolume(uuid) => write!(f, "physical volume {uuid}"),
        }
    }
}

/// Why a layer, or its contents, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Superblock(#[from] SuperblockProblem),
    #[error(transparent)]
    Array(#[from] ArrayProblem),
    #[error(transparent)]
    Label(#[from] LabelProblem),
    #[error(transparent)]
    Volume(#[from] VolumeProblem),
    #[error("it cannot be read: {0}")]
    Read(io::ErrorKind),
    #[error("layers are nested too deep, or there are too many")]
    Limit,
}

/// A layer.
#[derive(Debug)]
pub struct Layer {
    /// The path of a disk, or the name of an array or a volume.
    pub name: String,
    pub kind: LayerKind,
    /// 0 if it is unknown.
    pub len_bytes: u64,
    pub components: Vec<Component>,
    pub contents: Contents,
    pub notes: Vec<ArrayNote>,
    pub problem: Option<Problem>,
    /// None if it cannot be read.
    pub(crate) device: Option<Arc<dyn BlockDevice>>,
    /// The number of layers below it.
    pub(crate) depth: usize,
}

impl Layer {
    /// Returns the layers that it is made of.
    pub fn below(&self) -> impl Iterator<Item = LayerId> {
        self.components.iter().filter_map(|part| match part {
            Component::Present(layer) => Some(*layer),
            Component::Missing(_) | Component::LeftOut(..) => None,
        })
    }

    /// Returns whether parts of it are missing or left out, except for spares.
    pub fn is_degraded(&self) -> bool {
        self.components
            .iter()
            .any(|part| matches!(part, Component::Missing(_)))
    }

    /// Returns its device, if it can be read.
    pub fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.device.as_ref()
    }
}

//! Partitions, md arrays and LVM volumes as read-only devices in user space.
//!
//! A NAS box has a file system on LVM volumes or on arrays of its disks. This crate finds the layers on disks and
//! images by itself, and gives the devices on top of them. It needs no root rights, no `mdadm` and no `lvm`. Nothing
//! in it can write.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod assembly;
mod concat;
mod contents;
mod copies;
mod crc32;
mod fan_out;
mod layer;
mod lvm;
mod mapping;
mod md;
mod mirrored;
mod parity_array;
mod parity_layout;
mod partition;
mod raid10;
mod search;
mod striped;
mod window;

pub use assembly::{Assembly, Disk, FoundVolume, is_layered};
pub use contents::{Contents, Foreign};
pub use layer::{Component, Layer, LayerId, LayerKind, MissingPart, Problem};
pub use lvm::problem::{LabelProblem, TextFault, VolumeProblem};
pub use md::problem::{ArrayNote, ArrayProblem, LeftOut, SuperblockProblem};
pub use search::{Devices, Disks, OtherDisks, SearchError, other_disks};

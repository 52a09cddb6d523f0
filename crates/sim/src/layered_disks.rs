//! Disks of a NAS box: members of md arrays and physical volumes of LVM, written without the kernel.
//!
//! The maps of arrays follow the kernel's functions step by step, so that they are independent of a reader's. `mdadm
//! --examine` and `lvs` judge the metadata.

mod gpt;
mod lvm_group;
mod md_array;

pub use gpt::seal_gpt;
pub use lvm_group::{LvmGroup, LvmSegment, LvmVolume, seal_lvm};
pub use md_array::{MdArray, MdMetadata, seal_md};

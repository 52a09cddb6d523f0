//! The btrfs on-disk format as types: ids, keys, tree blocks, items, superblock, features,
//! checksums, names and compression framing. No IO, no unsafe.
//!
//! On-disk numbers are little-endian and unaligned; the structs here are views of the bytes, with the kernel's field
//! names. No input bytes cause a panic.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod block_group_flags;
pub mod check;
mod chunk_check;
pub mod compress;
pub mod csum;
pub mod features;
pub mod ids;
pub mod item;
pub mod key;
pub mod limits;
pub mod maker;
pub mod name_hash;
pub mod node;
pub mod superblock;
pub mod uuid;

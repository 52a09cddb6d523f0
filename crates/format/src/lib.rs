//! The btrfs on-disk format as types: no IO, no unsafe.

pub mod csum;
pub mod name_hash;

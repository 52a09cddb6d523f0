//! The kernel's btrfs as the oracle for reading: volumes that it makes and fills, and what it shows of them.

pub mod fill;
pub mod kernel;
pub mod manifest;
pub mod matrix;

//! The kernel's btrfs as the oracle for reading: creates and fills volumes, and lists their contents.

pub mod fill;
pub mod kernel;
pub mod manifest;
pub mod matrix;

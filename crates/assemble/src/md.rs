//! Arrays of the kernel's md driver.

pub(crate) mod array;
pub(crate) mod problem;
pub(crate) mod superblock;

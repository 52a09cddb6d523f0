//! Arrays of the kernel's md driver.

pub(crate) mod array;
pub(crate) mod logs;
pub(crate) mod metadata;
pub(crate) mod problem;
pub(crate) mod superblock;
pub(crate) mod version0;

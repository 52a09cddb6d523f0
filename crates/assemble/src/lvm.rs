//! LVM volumes.

pub(crate) mod group;
pub(crate) mod label;
pub(crate) mod problem;
pub(crate) mod text;

//! The bytes of files: from file extents to the devices.

mod csums;
mod decompressed;
mod extents;
mod read;
mod seek;

pub(crate) use decompressed::DecompressedExtents;

//! The bytes of files: from file extents to the devices.

mod buffer;
mod compressible;
mod csums;
mod decompressed;
mod extents;
mod read;
mod seek;
mod write_back;

pub(crate) use buffer::WriteBuffer;
pub(crate) use compressible::looks_compressible;
pub(crate) use decompressed::DecompressedExtents;

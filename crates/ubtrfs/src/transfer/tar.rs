//! Directories and files of a volume as a tar archive.

mod archiver;
mod pax;
mod writer;

pub(crate) use self::archiver::{Archiver, TarError};

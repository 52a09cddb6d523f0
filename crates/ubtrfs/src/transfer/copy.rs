//! Copying files between volumes and directories of the host.
//!
//! Invariants
//! - COPY-1: nothing outside the destination is touched, regardless of names and links in the source. Every name is one
//!   component, used below an open directory, and no link is followed.
//! - COPY-2: a failure is reported and the rest is copied, unless all of it would fail for the same reason.
//! - COPY-3: times and modes of a directory are set after all its contents were written.
//!
//! Not here: the choice of the destination (the caller).

mod attributes;
mod copier;
mod dest;
mod destination;
mod error;
mod from_host;
mod from_volume;
mod metadata;
mod options;
mod source;
mod to_host;
mod to_volume;

pub(crate) use self::attributes::Attributes;
pub(crate) use self::copier::{Copier, Top};
#[cfg(test)]
pub(crate) use self::dest::DestError;
pub(crate) use self::dest::open_directory;
pub(crate) use self::destination::Destination;
pub(crate) use self::error::CopyError;
pub(crate) use self::from_host::{FromHost, HostFile};
pub(crate) use self::from_volume::FromVolume;
pub(crate) use self::options::CopyOptions;
pub use self::options::{Reflink, Sparse};
pub(crate) use self::source::Source;
pub(crate) use self::to_host::{Made, ToHost};
pub(crate) use self::to_volume::ToVolume;

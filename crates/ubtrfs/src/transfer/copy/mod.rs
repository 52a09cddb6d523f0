//! Copying files between volumes and directories of this machine.
//!
//! Invariants
//! - COPY-1: nothing outside the destination is touched, whatever names and links the source holds.
//!   Every name is one component, used below an open directory, and no link is followed.
//! - COPY-2: what fails is reported and the rest is copied, unless all of it would fail for the same reason.
//! - COPY-3: times and modes of a directory are set after all that is in it was written.
//!
//! Not here: which destination is meant (the caller).

mod copier;
mod dest;
mod destination;
mod error;
mod facts;
mod from_host;
mod from_volume;
mod metadata;
mod options;
mod source;
mod to_host;
mod to_volume;

pub use self::copier::{Copier, Top};
pub use self::dest::{DestError, open_directory};
pub use self::destination::Destination;
pub use self::error::{CopyError, CopyProblem};
pub use self::facts::{Facts, Xattrs};
pub use self::from_host::{FromHost, HostFile};
pub use self::from_volume::FromVolume;
pub use self::metadata::MetadataError;
pub use self::options::{CopyOptions, Reflink, Sparse};
pub use self::source::{CopyStep, Data, Source, Walking};
pub use self::to_host::{FirstName, Made, Stream, ToHost};
pub use self::to_volume::ToVolume;

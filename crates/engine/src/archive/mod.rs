//! Reading tar archives, from files and pipes: what fills new volumes, and what is unpacked into those that exist.
//!
//! Not here: where members belong. A path is any bytes, and may well lead out of where it is unpacked.

mod error;
mod member;
mod pax;
mod sparse;
mod stream;

pub use error::ArchiveError;
pub use member::{Member, MemberAttributes, MemberBody, Members};
pub use sparse::Part;
pub(crate) use stream::TarStream;

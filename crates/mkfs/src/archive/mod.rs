//! Reading tar archives, from files and pipes: what fills new volumes, and what is unpacked into those that exist.
//!
//! Not here: where members belong. A path is any bytes, and may well lead out of where it is unpacked.

mod acl_text;
mod compressed;
mod error;
mod member;
mod pax;
mod sparse;
mod stream;

pub use acl_text::{OwnerNames, acl_bytes, acl_text};
pub use error::ArchiveError;
pub use member::{Member, MemberAttributes, MemberBody, Members, Xattr};
pub use sparse::Part;
pub(crate) use stream::TarStream;

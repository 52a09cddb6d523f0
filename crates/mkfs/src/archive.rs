//! Tar archives from files and pipes. They are used to fill new volumes, and to unpack into existing ones.
//!
//! Not here: the checks of paths. A path may contain any bytes, and may lead out of the target directory.

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

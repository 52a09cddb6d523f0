//! Copying, walking, archiving, unpacking and removing trees of files: between volumes, directories of the host and tar
//! archives.
//!
//! The parts work on the engine below a [`Volume`](crate::Volume) and on handles of inodes. They report progress and
//! failures to a [`Progress`](crate::Progress). A transfer continues after files that it cannot transfer, unless all further ones would fail
//! as well ([`is_final_error`]). Paths are for messages only: they may contain any bytes, which
//! [`Escaped`](crate::Escaped) displays.
//!
//! Not here: paths in volumes, and options for programs (`copies`, `removal`, `trees`, `walk`).

pub(crate) mod copy;
mod device_number;
mod file_data;
mod final_error;
pub(crate) mod removal;
pub(crate) mod tar;
pub(crate) mod unpack;
pub(crate) mod walk;

pub(crate) use self::device_number::{device_of_host, host_device};
pub(crate) use self::final_error::is_final_error;

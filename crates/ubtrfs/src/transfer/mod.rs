//! Trees of files copied, walked, archived, unpacked and removed: between volumes, directories of this machine and
//! tar archives.
//!
//! The parts work on the engine below a [`Volume`](crate::Volume) and on handles of inodes. An [`Observer`] hears of
//! progress and of what failed. A transfer goes on past files that it cannot transfer, unless all that follows would fail
//! as well ([`is_final_error`]). Paths are for messages only: any bytes, which [`Escaped`](crate::Escaped) shows.
//!
//! Not here: paths in volumes, and options for programs (`copies`, `removal`, `trees`, `walk`).

pub(crate) mod copy;
mod device_number;
mod file_data;
mod final_error;
mod observer;
pub(crate) mod removal;
pub(crate) mod tar;
pub(crate) mod unpack;
pub(crate) mod walk;

pub(crate) use self::device_number::DeviceNumber;
pub(crate) use self::final_error::is_final_error;
pub(crate) use self::observer::Observer;

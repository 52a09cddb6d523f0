//! Groups of operations that become durable together.

use std::ffi::{c_int, c_void};

use crate::arguments::handle;
use crate::failure::{Failure, number};
use crate::volume::ubtrfs_volume;

/// Does the work of a group; `data` is the caller's. Another result than 0 says that the work failed.
pub type ubtrfs_work_callback = Option<unsafe extern "C" fn(data: *mut c_void) -> c_int>;

/// The end of a group that did not become durable as one.
enum Ended {
    /// The callback's result.
    ByWork(c_int),
    Failed(ubtrfs::Error),
}

impl From<ubtrfs::Error> for Ended {
    fn from(error: ubtrfs::Error) -> Ended {
        Ended::Failed(error)
    }
}

/// Calls `work`, and commits all that it did at once: after a power cut there is all of it or nothing. Returns when it
/// is durable.
///
/// Changes by other threads wait meanwhile, so `work` must not wait for a thread that changes this volume. An operation
/// that commits by itself is -EDQUOT within: syncs, subvolumes and snapshots that are made, ubtrfs_receive,
/// ubtrfs_send. If `work` returns another value than 0, that is returned. The work that it did stays then, and becomes
/// durable with the next commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_group(
    volume: *const ubtrfs_volume,
    work: ubtrfs_work_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the head of the header.
        let handle = unsafe { handle(volume)? };
        let work = work.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        // SAFETY: the caller's function gets what its type says.
        let done = handle.volume.group_with(|| match unsafe { work(data) } {
            0 => Ok(()),
            result => Err(Ended::ByWork(result)),
        });
        match done {
            Ok(()) => Ok(0),
            Err(Ended::ByWork(result)) => Ok(result),
            Err(Ended::Failed(error)) => Err(error.into()),
        }
    })
}

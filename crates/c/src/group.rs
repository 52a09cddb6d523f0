//! Groups of operations that become durable together.

use std::ffi::{c_int, c_void};

use crate::arguments::handle;
use crate::failure::{Failure, number};
use crate::volume::ubtrfs_volume;

/// Runs the operations of a group, with the caller's `data`. A result other than 0 means that they failed.
pub type ubtrfs_work_callback = Option<unsafe extern "C" fn(data: *mut c_void) -> c_int>;

/// The reason why a group did not become durable atomically.
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

/// Calls `work`, and commits all its changes atomically: after a power cut either all of them exist or none does.
/// Returns when they are durable.
///
/// Changes by other threads wait for the call, so `work` must not wait for a thread that changes this volume.
/// Operations that commit by themselves fail with -EDQUOT inside `work`: syncs, creation of subvolumes and snapshots,
/// ubtrfs_receive, ubtrfs_send. If `work` returns another value than 0, that is returned. The changes so far are kept
/// then, and become durable with the next commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_group(
    volume: *const ubtrfs_volume,
    work: ubtrfs_work_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        let work = work.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        // SAFETY: the callback receives arguments of its declared type.
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

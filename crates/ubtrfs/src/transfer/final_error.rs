//! Errors of a volume after which further changes would fail as well.

use ubtrfs_fs::Error;

/// Returns whether all further changes would fail for the same reason.
pub(crate) fn is_final_error(error: &Error) -> bool {
    error.is_no_space()
        || error.is_unwritable()
        || matches!(error, Error::Aborted(_) | Error::Closed | Error::ReadOnly)
}

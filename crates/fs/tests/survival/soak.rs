//! The length of test runs.

/// Returns `usual` in a normal run, and `soak` in a soak.
pub(crate) fn count(usual: usize, soak: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => soak,
        None => usual,
    }
}

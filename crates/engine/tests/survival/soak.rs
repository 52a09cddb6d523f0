//! How long tests run.

/// Returns one number for every run, the other for the soak.
pub(crate) fn count(usual: usize, soak: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => soak,
        None => usual,
    }
}

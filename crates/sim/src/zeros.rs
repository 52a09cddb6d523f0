//! Blocks of zeros, told from others quickly in unoptimised builds as well.

const ZEROS: [u8; 4096] = [0; 4096];

/// Returns whether a block is zero. Only slices of at most 4 KiB are ever called zero.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    ZEROS.get(..block.len()) == Some(block)
}

//! Detection of zero blocks that is fast even in unoptimised builds.

const ZEROS: [u8; 4096] = [0; 4096];

/// Returns whether a block is zero. Always false for slices of more than 4 KiB.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    ZEROS.get(..block.len()) == Some(block)
}

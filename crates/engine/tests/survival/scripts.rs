//! What is left out of random scripts.

use ubtrfs_sim::script::{Flags, Op};

/// Without files that are written where they lie, whose data is not that of any moment after a cut, without those of
/// which each write is a commit, and without the flag whose meaning follows from how the volume is opened.
pub(crate) fn copied_on_write(mut ops: Vec<Op>) -> Vec<Op> {
    for op in &mut ops {
        if let Op::SetFlags { flags, .. } = op {
            *flags = Flags {
                nocow: false,
                sync: false,
                compress: false,
                ..*flags
            };
        }
    }
    ops
}

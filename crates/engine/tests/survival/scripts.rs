//! Operations that are left out of random scripts.

use ubtrfs_sim::script::{Flags, Op};

/// Takes three kinds of files out of a script. Those without copy on write: after a cut their data is not that of one
/// moment. Those of which each write is a commit. Those with the flag whose meaning follows from the volume's options.
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

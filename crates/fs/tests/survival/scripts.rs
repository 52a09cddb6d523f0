//! Operations that are excluded from random scripts.

use ubtrfs_sim::script::{Flags, Op};

/// Removes three kinds of files from a script. Files without copy on write: after a cut their data is not
/// from one moment. Files with a commit for each write. Files with the flag whose meaning depends on the
/// volume's options.
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

//! Extended attributes: which namespaces exist, and how lists and values go into a caller's buffer.
//!
//! ACLs are ordinary xattrs here (`system.posix_acl_access`, `system.posix_acl_default`): what btrfs
//! stores is what the kernel passes to user space, and the kernel evaluates it.

use crate::request::{Errno, Result};

/// Namespaces in which the kernel's btrfs looks a name up; it refuses others.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"security.", b"trusted.", b"btrfs."];
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub(super) fn namespace_exists(name: &[u8]) -> bool {
    ACLS.contains(&name)
        || NAMESPACES
            .iter()
            .any(|space| name.len() > space.len() && name.starts_with(space))
}

/// Puts a value in; an empty buffer only wants the length.
pub(super) fn fill(out: &mut [u8], value: &[u8]) -> Result<usize> {
    if !out.is_empty() {
        out.get_mut(..value.len())
            .ok_or(Errno::RANGE)?
            .copy_from_slice(value);
    }
    Ok(value.len())
}

/// Puts names in, each followed by a zero byte; an empty buffer only wants the length.
pub(super) fn fill_list<'a>(
    out: &mut [u8],
    names: impl Iterator<Item = &'a [u8]>,
) -> Result<usize> {
    let measure = out.is_empty();
    let mut len = 0;
    for name in names {
        if !measure {
            let room = out.get_mut(len..=len + name.len()).ok_or(Errno::RANGE)?;
            let (text, end) = room.split_at_mut(name.len());
            text.copy_from_slice(name);
            end.fill(0);
        }
        len += name.len() + 1;
    }
    Ok(len)
}

//! POSIX ACLs, evaluated for a caller.
//!
//! Source of the layout: acl(5) and the kernel's uapi `posix_acl_xattr.h`: a version, then entries of tag,
//! permissions and id, all little-endian.

use super::{Caller, Mask};
use crate::inode::Attr;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    tag: Tag,
    bits: Mask,
}

/// Returns the entries of an ACL. Returns None for an invalid or empty value: then the mode is used.
pub(super) fn entries(value: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = value.split_first_chunk::<4>()?;
    let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else {
        return None;
    };
    if u32::from_le_bytes(*version) != VERSION || entries.is_empty() {
        return None;
    }
    entries.iter().map(entry).collect()
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([t0, t1]) {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::OwningGroup,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return None,
    };
    let bits = u32::from(u16::from_le_bytes([p0, p1])) & 7;
    Some(Entry { tag, bits })
}

/// Returns whether an ACL grants all of `mask`, evaluated in the order of acl(5): owner, named users, groups,
/// others.
pub(super) fn grants(entries: &[Entry], caller: &Caller, attr: &Attr, mask: Mask) -> bool {
    let bits = |tag: Tag| entries.iter().find(|entry| entry.tag == tag);
    let limit = bits(Tag::Mask).map_or(7, |entry| entry.bits);
    if caller.uid == attr.uid {
        return bits(Tag::Owner).is_some_and(|entry| entry.bits & mask == mask);
    }
    if let Some(named) = bits(Tag::User(caller.uid)) {
        return named.bits & limit & mask == mask;
    }
    let mut groups = entries
        .iter()
        .filter(|entry| match entry.tag {
            Tag::OwningGroup => caller.is_in_group(attr.gid),
            Tag::Group(gid) => caller.is_in_group(gid),
            _ => false,
        })
        .peekable();
    if groups.peek().is_some() {
        // A single group entry must grant all of `mask`.
        return groups.any(|entry| entry.bits & limit & mask == mask);
    }
    bits(Tag::Other).is_some_and(|entry| entry.bits & mask == mask)
}

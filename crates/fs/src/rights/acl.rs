//! The entries of POSIX ACLs.
//!
//! Source of the layout: acl(5) and the kernel's uapi `posix_acl_xattr.h`: a version, then entries of tag,
//! permissions and id, all little-endian.

use super::Mask;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tag: Tag,
    pub(super) bits: Mask,
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

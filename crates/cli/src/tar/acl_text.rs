//! A POSIX ACL, as an extended attribute holds it, in the text form that archives carry.
//!
//! Numbers stand for users and groups: names would be those of this machine, not of the volume's.

use std::fmt::Write;

#[cfg(test)]
mod tests;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// None if the bytes are no ACL.
pub(super) fn acl_text(bytes: &[u8]) -> Option<String> {
    let (version, entries) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || entries.is_empty() {
        return None;
    }
    let mut text = String::new();
    for entry in entries {
        let [tag_low, tag_high, perm, _, id @ ..] = *entry;
        let id = u32::from_le_bytes(id);
        if !text.is_empty() {
            text.push(',');
        }
        // Writing to a String cannot fail.
        let _ = match u16::from_le_bytes([tag_low, tag_high]) {
            0x01 => write!(text, "user::"),
            0x02 => write!(text, "user:{id}:"),
            0x04 => write!(text, "group::"),
            0x08 => write!(text, "group:{id}:"),
            0x10 => write!(text, "mask::"),
            0x20 => write!(text, "other::"),
            _ => return None,
        };
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if perm & bit != 0 { letter } else { '-' });
        }
    }
    Some(text)
}

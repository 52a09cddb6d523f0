//! Conversion between POSIX ACLs in extended attributes and the text form in archives.
//!
//! Users and groups are written as numbers, because names would refer to this machine, not to the volume. When parsing,
//! names (as GNU tar writes them) are resolved with the caller's table. A number may be alone or follow the
//! permissions (star, bsdtar).

use std::collections::HashMap;
use std::fmt::Write;

#[cfg(test)]
mod tests;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id in entries that do not name a user or group.
const NO_ID: u32 = u32::MAX;

/// Numbers of users and groups by name.
#[derive(Clone, Debug, Default)]
pub struct OwnerNames {
    pub users: HashMap<String, u32>,
    pub groups: HashMap<String, u32>,
}

/// Converts an ACL to text. Returns None if the bytes are not an ACL.
pub fn acl_text(bytes: &[u8]) -> Option<String> {
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
            OWNER => write!(text, "user::"),
            USER => write!(text, "user:{id}:"),
            OWNING_GROUP => write!(text, "group::"),
            GROUP => write!(text, "group:{id}:"),
            MASK => write!(text, "mask::"),
            OTHER => write!(text, "other::"),
            _ => return None,
        };
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if perm & bit != 0 { letter } else { '-' });
        }
    }
    Some(text)
}

/// Parses an ACL in text form. Returns None if it is invalid, or names a user or group that is not in `names`.
pub fn acl_bytes(text: &[u8], names: &OwnerNames) -> Option<Vec<u8>> {
    let text = str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for line in text.split([',', '\n']) {
        // The effective permissions may follow as a comment.
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            entries.push(entry_of(entry, names)?);
        }
    }
    // The kernel requires this order.
    entries.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in &entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    (!entries.is_empty()).then_some(bytes)
}

/// Parses an entry such as "user:1000:rwx" to its tag, id and permissions.
fn entry_of(entry: &str, names: &OwnerNames) -> Option<(u16, u32, u16)> {
    let entry = entry.strip_prefix("default:").unwrap_or(entry);
    let mut fields = entry.split(':');
    let (kind, name) = (fields.next()?, fields.next()?);
    // Some writers omit the empty name of these entries.
    let (name, letters) = match (kind, fields.next()) {
        ("mask" | "m" | "other" | "o", None) => ("", name),
        (_, letters) => (name, letters?),
    };
    let number = fields.next();
    let id = |by_name: &HashMap<String, u32>| {
        let number = number.or(Some(name)).and_then(|number| number.parse().ok());
        number.or_else(|| by_name.get(name).copied())
    };
    let (tag, id) = match (kind, name) {
        ("user" | "u", "") => (OWNER, NO_ID),
        ("user" | "u", _) => (USER, id(&names.users)?),
        ("group" | "g", "") => (OWNING_GROUP, NO_ID),
        ("group" | "g", _) => (GROUP, id(&names.groups)?),
        ("mask" | "m", "") => (MASK, NO_ID),
        ("other" | "o", "") => (OTHER, NO_ID),
        _ => return None,
    };
    let mut permissions = 0;
    for letter in letters.chars() {
        permissions |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some((tag, id, permissions))
}

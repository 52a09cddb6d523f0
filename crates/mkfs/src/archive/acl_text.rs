//! A POSIX ACL, as an extended attribute holds it, in the text form that archives carry.
//!
//! Numbers are written for users and groups: names would be those of this machine, not of the volume's. The text
//! may have names, as GNU tar writes, which the caller knows. Or it has a number, alone or behind the permissions,
//! as star and bsdtar write.

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
/// The id of entries that name no user or group.
const NO_ID: u32 = u32::MAX;

/// The numbers of users and groups by their names.
#[derive(Clone, Debug, Default)]
pub struct OwnerNames {
    pub users: HashMap<String, u32>,
    pub groups: HashMap<String, u32>,
}

/// Returns an ACL as text. None if the bytes are no ACL.
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

/// Returns the ACL that a text means. None if it means none, or one of users or groups that `names` does not have.
pub fn acl_bytes(text: &[u8], names: &OwnerNames) -> Option<Vec<u8>> {
    let text = str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for line in text.split([',', '\n']) {
        // The effect of the mask may follow as a comment.
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            entries.push(entry_of(entry, names)?);
        }
    }
    // The order in which the kernel wants them.
    entries.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in &entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    (!entries.is_empty()).then_some(bytes)
}

/// Parses an entry as "user:1000:rwx" to its tag, id and permissions.
fn entry_of(entry: &str, names: &OwnerNames) -> Option<(u16, u32, u16)> {
    let entry = entry.strip_prefix("default:").unwrap_or(entry);
    let mut fields = entry.split(':');
    let (kind, name) = (fields.next()?, fields.next()?);
    // Some writers leave the empty name of these out.
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

//! POSIX ACLs: their binary form, and their interaction with the mode.
//!
//! An attribute's value has the same form as in the system calls: a version, then entries, all little endian.
//! Sources: acl(5), and values stored by the kernel.
//!
//! Not here: the inodes' ACLs (the engine), permission checks (the kernel's, through the mount).

#[cfg(test)]
mod tests;

/// The attribute with the access rights of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the access rights that new files in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries without a named user or group.
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    fn from_raw(raw: u16) -> Option<Tag> {
        Some(match raw {
            0x01 => Tag::UserObj,
            0x02 => Tag::User,
            0x04 => Tag::GroupObj,
            0x08 => Tag::Group,
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// Bits: read 4, write 2, execute 1.
    perm: u16,
    id: u32,
}

/// A valid ACL: sorted entries, one each for user, group and other, and a mask if there are named entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// The parsed value of an ACL attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// No entries: the attribute is removed.
    Empty,
    Acl(Acl),
    Invalid,
}

/// Parses the value of an ACL attribute.
pub fn parse(value: &[u8]) -> Parsed {
    if value.is_empty() {
        return Parsed::Empty;
    }
    let Some((head, rest)) = value.split_first_chunk::<HEAD_BYTES>() else {
        return Parsed::Invalid;
    };
    if u32::from_le_bytes(*head) != VERSION || !rest.len().is_multiple_of(ENTRY_BYTES) {
        return Parsed::Invalid;
    }
    if rest.is_empty() {
        return Parsed::Empty;
    }
    let entries: Option<Vec<Entry>> = rest.chunks_exact(ENTRY_BYTES).map(parse_entry).collect();
    match entries {
        Some(entries) if is_sound(&entries) => Parsed::Acl(Acl { entries }),
        _ => Parsed::Invalid,
    }
}

fn parse_entry(bytes: &[u8]) -> Option<Entry> {
    let [t0, t1, p0, p1, i0, i1, i2, i3] = *bytes.first_chunk()?;
    let tag = Tag::from_raw(u16::from_le_bytes([t0, t1]))?;
    let perm = u16::from_le_bytes([p0, p1]);
    let id = u32::from_le_bytes([i0, i1, i2, i3]);
    let named = matches!(tag, Tag::User | Tag::Group);
    if perm > 7 || named && id == NO_ID {
        return None;
    }
    let id = if named { id } else { NO_ID };
    Some(Entry { tag, perm, id })
}

fn is_sound(entries: &[Entry]) -> bool {
    let mut before = None;
    let mut named = false;
    for entry in entries {
        let follows = match (before, entry.tag) {
            (None, Tag::UserObj) => true,
            (Some(Tag::UserObj | Tag::User), Tag::User | Tag::GroupObj) => true,
            (Some(Tag::GroupObj | Tag::Group), Tag::Group | Tag::Mask) => true,
            (Some(Tag::GroupObj | Tag::Group), Tag::Other) => !named,
            (Some(Tag::Mask), Tag::Other) => true,
            _ => false,
        };
        if !follows {
            return false;
        }
        named |= matches!(entry.tag, Tag::User | Tag::Group);
        before = Some(entry.tag);
    }
    before == Some(Tag::Other)
}

/// The mode and ACLs of an inode created in a directory with a default ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inheritance {
    /// Permission bits, plus the given format bits.
    pub mode: u32,
    /// None if the mode is equivalent.
    pub access: Option<Acl>,
}

impl Acl {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + ENTRY_BYTES * self.entries.len());
        bytes.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            bytes.extend((entry.tag as u16).to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// Returns the permission bits of the equivalent mode, three bits for each class.
    fn mode_bits(&self) -> u32 {
        let perm = |tag| {
            let found = self.entries.iter().find(|entry| entry.tag == tag);
            found.map(|entry| u32::from(entry.perm))
        };
        let group = perm(Tag::Mask).or(perm(Tag::GroupObj));
        perm(Tag::UserObj).unwrap_or(0) << 6
            | group.unwrap_or(0) << 3
            | perm(Tag::Other).unwrap_or(0)
    }

    /// Returns whether the ACL is equivalent to a mode.
    fn is_mode(&self) -> bool {
        let plain = |tag| matches!(tag, Tag::UserObj | Tag::GroupObj | Tag::Other);
        self.entries.iter().all(|entry| plain(entry.tag))
    }

    /// Returns the entry that corresponds to the group bits of a mode.
    fn group_class(&mut self) -> Option<&mut Entry> {
        let at = |tag| self.entries.iter().position(|entry| entry.tag == tag);
        let at = at(Tag::Mask).or_else(|| at(Tag::GroupObj))?;
        self.entries.get_mut(at)
    }

    /// Computes the mode of an inode with this access ACL, and drops the ACL if the mode is equivalent.
    pub fn applied_to(self, mode: u32) -> Inheritance {
        Inheritance {
            mode: mode & !0o777 | self.mode_bits(),
            access: (!self.is_mode()).then_some(self),
        }
    }

    /// Applies the default ACL of a directory to an inode created with `mode`.
    pub fn inherited_with(&self, mode: u32) -> Inheritance {
        let mut acl = self.clone();
        let limit = |entry: &mut Entry, shift: u32| entry.perm &= (mode >> shift & 7) as u16;
        for entry in &mut acl.entries {
            match entry.tag {
                Tag::UserObj => limit(entry, 6),
                Tag::Other => limit(entry, 0),
                _ => {}
            }
        }
        if let Some(entry) = acl.group_class() {
            limit(entry, 3);
        }
        acl.applied_to(mode)
    }

    /// Updates the entries after a chmod of the inode to `mode`.
    pub fn chmod(&mut self, mode: u32) {
        for entry in &mut self.entries {
            match entry.tag {
                Tag::UserObj => entry.perm = (mode >> 6 & 7) as u16,
                Tag::Other => entry.perm = (mode & 7) as u16,
                _ => {}
            }
        }
        if let Some(entry) = self.group_class() {
            entry.perm = (mode >> 3 & 7) as u16;
        }
    }
}

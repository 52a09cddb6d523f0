//! POSIX ACLs: their binary form, and what they do to a mode and a mode to them.
//!
//! The form in an attribute's value is the one that users hand over: a version, then entries, all little
//! endian. Sources: acl(5), and values that the kernel stored.
//!
//! Not here: which inodes have one (the engine), permission checks (the kernel's, through the mount).

#[cfg(test)]
mod tests;

/// The attribute with the rights to a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the rights that new files in a directory get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries that name no user or group.
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
    /// Read 4, write 2, execute 1.
    perm: u16,
    id: u32,
}

/// A sound ACL: its entries in order, one each of user, group and other, and a mask if anyone is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// The meaning of the value of an ACL attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// No entries: the attribute goes.
    Empty,
    Acl(Acl),
    Invalid,
}

/// Reads the value of an ACL attribute.
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

/// The mode and ACLs of an inode made in a directory with a default ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inheritance {
    /// Permission bits, with the format bits that were given.
    pub mode: u32,
    /// None if the mode says it all.
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

    /// Returns the permission bits of a mode, three bits a class, as far as the ACL says them.
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

    /// Returns whether a mode says the same.
    fn is_mode(&self) -> bool {
        let plain = |tag| matches!(tag, Tag::UserObj | Tag::GroupObj | Tag::Other);
        self.entries.iter().all(|entry| plain(entry.tag))
    }

    /// Returns the entry that the group bits of a mode stand for.
    fn group_class(&mut self) -> Option<&mut Entry> {
        let at = |tag| self.entries.iter().position(|entry| entry.tag == tag);
        let at = at(Tag::Mask).or_else(|| at(Tag::GroupObj))?;
        self.entries.get_mut(at)
    }

    /// Makes the access ACL of an inode: its mode, and the ACL unless the mode says it all.
    pub fn applied_to(self, mode: u32) -> Inheritance {
        Inheritance {
            mode: mode & !0o777 | self.mode_bits(),
            access: (!self.is_mode()).then_some(self),
        }
    }

    /// Applies the default ACL of a directory in which an inode is made with `mode`.
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

    /// Changes the entries after the inode's mode was changed to `mode`.
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

//! Marks: data of NAS makers' systems on a btrfs volume that mainline does not have.
//!
//! [`MARKS`] is the only list. Readers accept its flags and sizes. Unlisted flags remain damage. A volume with a mark
//! is only read, because a writer does not maintain the data of the maker's system.
//!
//! Source: the kernels that Synology publishes (DSM 6.2: 4.4; DSM 7: an older line, and 5.10).
//!
//! Not here: the refusal to write (`storage`), and the check of items (`check`).

mod find;
mod syno;

use std::fmt;

pub use syno::{CREATE_TIME, MadeBy, SuperblockEnd, create_time, label_build};

use crate::ids::RootId;
use crate::item::RootItemFlags;
use crate::key::{Key, KeyType};

/// The flag of root items of hidden subvolumes.
const HIDDEN_SUBVOLUME: u64 = 1 << 32;
/// The index of names in any case, in trees of files.
const CASELESS_INDEX: KeyType = KeyType(91);
const USAGE_ROOT: KeyType = KeyType(162);
const USAGE_EXTENT: KeyType = KeyType(163);
/// The object id of the items of usage in trees of files.
const USAGE: u64 = -206i64 as u64;
/// Item types in trees of quotas.
const USER_QUOTA: KeyType = KeyType(241);
const QUOTA_STATE: KeyType = KeyType(245);

/// A maker of NAS systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub enum Maker {
    Synology,
}

impl Maker {
    pub const fn name(self) -> &'static str {
        match self {
            Maker::Synology => "Synology DSM",
        }
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of a mark on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A bit of the superblock's `compat_flags`.
    Compat(u64),
    /// A bit of the superblock's `compat_ro_flags`.
    CompatRo(u64),
    /// The reserved bytes at the end of the superblock, if they are not zero.
    SuperblockEnd,
    /// A label of the form that the maker's system sets.
    Label,
    /// A bit of the flags of a root item.
    RootFlag(u64),
    /// A bit of the flags of an inode.
    InodeFlag(u64),
    /// The last reserved number of an inode item with `OWNER_QUOTA`, if it is not zero.
    InodeReserved,
    /// A file extent's `other_encoding`, if it is not zero.
    OtherEncoding,
    /// A bit of the flags of an extent item.
    ExtentFlag(u64),
    /// An item type in trees of files.
    ItemType(KeyType),
    /// A tree.
    Tree(RootId),
    /// The start of a name of an extended attribute.
    Xattr(&'static str),
}

/// A row of [`MARKS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub maker: Maker,
    pub place: Place,
    /// A short name for machines; unique.
    pub name: &'static str,
    pub meaning: &'static str,
}

const fn syno(place: Place, name: &'static str, meaning: &'static str) -> Mark {
    Mark {
        maker: Maker::Synology,
        place,
        name,
        meaning,
    }
}

/// All known marks.
pub static MARKS: &[Mark] = TABLE;

/// The flag of inodes whose quota of the owner is valid.
const OWNER_QUOTA: u64 = 1 << 30;

const TABLE: &[Mark] = &[
    syno(Place::Compat(1 << 61), "compat-61", "unnamed feature"),
    syno(
        Place::Compat(1 << 62),
        "block-group-cache-tree",
        "cache of the block groups",
    ),
    syno(
        Place::Compat(1 << 63),
        "caseless-names",
        "names are found in any case",
    ),
    syno(Place::CompatRo(1 << 59), "locker", "files that are locked"),
    syno(
        Place::SuperblockEnd,
        "superblock-end",
        "fields at the end of the superblock",
    ),
    syno(Place::Label, "label", "date and build in the label"),
    syno(
        Place::RootFlag(HIDDEN_SUBVOLUME),
        "root-hide",
        "hidden subvolume",
    ),
    syno(
        Place::RootFlag(1 << 33),
        "root-no-quota-load",
        "user quota is not loaded",
    ),
    syno(
        Place::RootFlag(1 << 34),
        "root-compression-ratio",
        "compression ratio or quota v2",
    ),
    syno(Place::RootFlag(1 << 35), "root-quota-off", "quota is off"),
    syno(
        Place::InodeFlag(1 << 29),
        "inode-no-dedupe",
        "not deduplicated",
    ),
    syno(
        Place::InodeFlag(OWNER_QUOTA),
        "inode-user-quota",
        "quota of the owner is valid",
    ),
    syno(
        Place::InodeReserved,
        "inode-quota-bytes",
        "bytes charged to the owner",
    ),
    syno(
        Place::OtherEncoding,
        "extent-deduplicated",
        "deduplicated file extent",
    ),
    syno(
        Place::ExtentFlag(1 << 59),
        "extent-clone-range",
        "extent with a range of clones",
    ),
    syno(
        Place::ItemType(CASELESS_INDEX),
        "caseless-index",
        "index of names in any case",
    ),
    syno(
        Place::ItemType(USAGE_ROOT),
        "usage-root",
        "space usage of the subvolume",
    ),
    syno(
        Place::ItemType(USAGE_EXTENT),
        "usage-extent",
        "space usage of an extent",
    ),
    syno(
        Place::Tree(RootId(200)),
        "user-quota-tree",
        "quota of users",
    ),
    syno(
        Place::Tree(RootId(201)),
        "group-quota-tree",
        "quota of groups",
    ),
    syno(
        Place::Tree(RootId(202)),
        "block-group-hint-tree",
        "hints of block groups",
    ),
    syno(
        Place::Tree(RootId(203)),
        "block-group-cache",
        "copies of block groups",
    ),
    syno(Place::Tree(RootId(205)), "usage-tree", "space usage"),
    syno(
        Place::Tree(RootId(206)),
        "usage-extent-tree",
        "space usage of extents",
    ),
    syno(Place::Tree(RootId(207)), "feature-tree", "features"),
    syno(
        Place::Tree(RootId(208)),
        "group-quota-v2-tree",
        "quota v2 of groups",
    ),
    syno(
        Place::Tree(RootId(209)),
        "user-quota-v2-tree",
        "quota v2 of users",
    ),
    syno(
        Place::Xattr("syno."),
        "xattr-syno",
        "attributes of the system",
    ),
    syno(
        Place::Xattr("system.syno_"),
        "xattr-syno-acl",
        "access control lists",
    ),
];

impl fmt::Display for Mark {
    /// Names the place and the meaning, without the maker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Compat(bit) => write!(f, "compat feature {bit:#x}")?,
            Place::CompatRo(bit) => write!(f, "compat_ro feature {bit:#x}")?,
            Place::SuperblockEnd => f.write_str("end of the superblock")?,
            Place::Label => f.write_str("label")?,
            Place::RootFlag(bit) => write!(f, "root flag {bit:#x}")?,
            Place::InodeFlag(bit) => write!(f, "inode flag {bit:#x}")?,
            Place::InodeReserved => f.write_str("reserved field of an inode")?,
            Place::OtherEncoding => f.write_str("other_encoding of a file extent")?,
            Place::ExtentFlag(bit) => write!(f, "extent flag {bit:#x}")?,
            Place::ItemType(item_type) => write!(f, "items of type {}", item_type.0)?,
            Place::Tree(id) => write!(f, "tree {id}")?,
            Place::Xattr(prefix) => write!(f, "attributes {prefix}*")?,
        }
        write!(f, " ({})", self.meaning)
    }
}

/// A set of rows of [`MARKS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u64);

const _: () = assert!(MARKS.len() <= u64::BITS as usize);

impl Marks {
    pub const NONE: Marks = Marks(0);

    /// Returns the set from [`Marks::bits`].
    pub const fn from_bits(bits: u64) -> Marks {
        Marks(bits)
    }

    /// Returns a bit for each row of the table, for atomic storage.
    pub const fn bits(self) -> u64 {
        self.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn union(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    pub fn insert(&mut self, other: Marks) {
        *self = self.union(other);
    }

    /// Returns the marks in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = &'static Mark> {
        let has = move |index: usize| self.0 & (1 << index) != 0;
        MARKS
            .iter()
            .enumerate()
            .filter_map(move |(index, mark)| has(index).then_some(mark))
    }

    /// Returns the maker, if there is a mark.
    pub fn maker(self) -> Option<Maker> {
        self.iter().next().map(|mark| mark.maker)
    }

    /// Returns the marks whose place satisfies `is_it`.
    fn placed(is_it: impl Fn(Place) -> bool) -> Marks {
        let mut found = 0;
        for (index, mark) in MARKS.iter().enumerate() {
            found |= u64::from(is_it(mark.place)) << index;
        }
        Marks(found)
    }
}

/// Maximum number of marks in a message.
const MOST_NAMED: usize = 3;

impl fmt::Display for Marks {
    /// Names the maker and the first marks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(maker) = self.maker() else {
            return f.write_str("no marks");
        };
        write!(f, "{maker}: ")?;
        for (index, mark) in self.iter().take(MOST_NAMED).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{mark}")?;
        }
        match (self.0.count_ones() as usize).saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Returns the bits of the flags of root items that makers use.
pub const fn root_flags() -> u64 {
    flags_of(true)
}

/// Returns whether the maker's system hides a subvolume.
pub fn is_hidden(flags: RootItemFlags) -> bool {
    flags.bits() & HIDDEN_SUBVOLUME != 0
}

/// Returns the bits of the flags of inodes that makers use.
pub const fn inode_flags() -> u64 {
    flags_of(false)
}

const fn flags_of(roots: bool) -> u64 {
    let mut bits = 0;
    let mut index = 0;
    while index < TABLE.len() {
        match TABLE[index].place {
            Place::RootFlag(bit) if roots => bits |= bit,
            Place::InodeFlag(bit) if !roots => bits |= bit,
            _ => {}
        }
        index += 1;
    }
    bits
}

/// Returns whether the tree belongs to a maker's system.
pub fn is_makers_tree(id: RootId) -> bool {
    (200..210).contains(&id.0) && !Marks::of_tree(id).is_empty()
}

/// Returns the sizes of an item in a tree of quotas that a maker's system keeps. None: the tree has no sizes of its
/// own for the type.
pub fn item_sizes(tree: RootId, key: Key) -> Option<&'static [u32]> {
    let of_users = matches!(tree.0, 200 | 209);
    let of_groups = matches!(tree.0, 201 | 208);
    match key.item_type {
        KeyType::QGROUP_STATUS if of_users => Some(&[64]),
        USER_QUOTA | KeyType::QGROUP_INFO | KeyType::QGROUP_LIMIT if of_users => Some(&[16]),
        QUOTA_STATE if of_users => Some(&[48, 64]),
        QUOTA_STATE if of_groups => Some(&[64]),
        _ => None,
    }
}

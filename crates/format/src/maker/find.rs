//! The marks in a superblock and in a leaf.
//!
//! A leaf passed the check before. Only the items that can have a mark are decoded, because this runs for every leaf
//! that a writer reads.

use zerocopy::FromBytes;

use super::{
    CASELESS_INDEX, Marks, OWNER_QUOTA, Place, SuperblockEnd, USAGE, USAGE_EXTENT, USAGE_ROOT,
};
use super::{inode_flags, label_build, root_flags};
use crate::ids::RootId;
use crate::item::{
    DirEntries, ExtentHead, FileExtent, InodeFlags, InodeItem, RootItem, RootItemFlags,
};
use crate::key::{Key, KeyType};
use crate::node::Node;
use crate::superblock::Superblock;

/// The first bytes of the names in the table.
const XATTRS: [&str; 2] = ["syno.", "system.syno_"];

impl Marks {
    /// Returns the marks in a superblock.
    pub fn of_superblock(superblock: &Superblock) -> Marks {
        let (compat, compat_ro) = (
            superblock.compat_flags.get(),
            superblock.compat_ro_flags.get(),
        );
        let has_end = SuperblockEnd::of(superblock).is_some();
        let has_label = label_build(superblock.label()).is_some();
        Marks::placed(|place| match place {
            Place::Compat(bit) => compat & bit != 0,
            Place::CompatRo(bit) => compat_ro & bit != 0,
            Place::SuperblockEnd => has_end,
            Place::Label => has_label,
            _ => false,
        })
    }

    /// Returns the mark of a tree that belongs to a maker's system.
    pub fn of_tree(tree: RootId) -> Marks {
        Marks::placed(|place| place == Place::Tree(tree))
    }

    /// Returns the marks in the flags of a root item.
    pub fn of_root_flags(flags: RootItemFlags) -> Marks {
        let bits = flags.bits() & root_flags();
        if bits == 0 {
            return Marks::NONE;
        }
        Marks::placed(|place| matches!(place, Place::RootFlag(bit) if bits & bit != 0))
    }

    /// Returns the marks in the flags of an inode.
    pub fn of_inode_flags(flags: InodeFlags) -> Marks {
        Marks::placed(|place| matches!(place, Place::InodeFlag(bit) if flags.bits() & bit != 0))
    }

    /// Returns the marks of an inode.
    pub fn of_inode(inode: &InodeItem) -> Marks {
        let bits = inode.flags.get() & inode_flags();
        if bits == 0 {
            return Marks::NONE;
        }
        // Without the flag the field means nothing: the kernel's fsync log leaves old bytes of memory there, and its
        // replay copies them to the inode.
        let is_charged = bits & OWNER_QUOTA != 0 && inode.reserved[3].get() != 0;
        Marks::placed(|place| match place {
            Place::InodeFlag(bit) => bits & bit != 0,
            Place::InodeReserved => is_charged,
            _ => false,
        })
    }

    /// Returns the mark of the name of an extended attribute.
    pub fn of_xattr(name: &[u8]) -> Marks {
        if !XATTRS
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
        {
            return Marks::NONE;
        }
        Marks::placed(|place| match place {
            Place::Xattr(start) => name.starts_with(start.as_bytes()),
            _ => false,
        })
    }

    /// Returns the marks in a tree block. An interior node has only the mark of its tree.
    pub fn of_block(node: Node<'_>) -> Marks {
        let mut found = Marks::of_tree_id(node.owner());
        Marks::for_each_item(node, &mut |marks| found.insert(marks));
        found
    }

    /// Passes the marks of each item of a leaf to `each`. Items without marks are skipped.
    pub fn for_each_item(node: Node<'_>, each: &mut dyn FnMut(Marks)) {
        let owner = node.owner();
        let has_files = owner.holds_files() || owner == RootId::TREE_LOG;
        for (slot, head) in node.heads().iter().enumerate() {
            // Most items cannot have a mark.
            if !may_have_mark(KeyType(head.key.item_type)) {
                continue;
            }
            if let Some((key, bytes)) = node.item(slot) {
                match Marks::of_item(has_files, key, bytes) {
                    Marks::NONE => {}
                    marks => each(marks),
                }
            }
        }
    }

    /// Returns the mark of an item type in trees of files, for a key.
    pub fn of_item_type(key: Key) -> Marks {
        match key.item_type {
            CASELESS_INDEX => Marks::placed(|place| place == Place::ItemType(CASELESS_INDEX)),
            USAGE_ROOT | USAGE_EXTENT if key.objectid == USAGE => {
                Marks::placed(|place| place == Place::ItemType(key.item_type))
            }
            _ => Marks::NONE,
        }
    }

    /// Returns the marks of one item. `has_files` is whether its tree contains inodes.
    pub fn of_item(has_files: bool, key: Key, bytes: &[u8]) -> Marks {
        match key.item_type {
            KeyType::ROOT_ITEM => {
                let tree = Marks::of_tree_id(RootId(key.objectid));
                let flags = RootItem::decode(bytes).map(|item| Marks::of_root_flags(item.flags()));
                tree.union(flags.unwrap_or_default())
            }
            KeyType::INODE_ITEM => InodeItem::ref_from_bytes(bytes)
                .map(Marks::of_inode)
                .unwrap_or_default(),
            KeyType::EXTENT_DATA => match FileExtent::decode(bytes) {
                Some(extent) if extent.head().other_encoding.get() != 0 => {
                    Marks::placed(|place| place == Place::OtherEncoding)
                }
                _ => Marks::NONE,
            },
            KeyType::EXTENT_ITEM => match ExtentHead::ref_from_prefix(bytes) {
                Ok((head, _)) => Marks::of_extent_flags(head.flags.get()),
                Err(_) => Marks::NONE,
            },
            KeyType::XATTR_ITEM => {
                let names = DirEntries::new(bytes).map(|entry| Marks::of_xattr(entry.name));
                names.fold(Marks::NONE, Marks::union)
            }
            _ if has_files => Marks::of_item_type(key),
            _ => Marks::NONE,
        }
    }

    fn of_extent_flags(flags: u64) -> Marks {
        // Mainline's flags are low.
        if flags >> 32 == 0 {
            return Marks::NONE;
        }
        Marks::placed(|place| matches!(place, Place::ExtentFlag(bit) if flags & bit != 0))
    }

    /// Returns the mark of a tree, quickly for the trees of mainline.
    fn of_tree_id(tree: RootId) -> Marks {
        if (200..RootId::FIRST_FREE).contains(&tree.0) {
            Marks::of_tree(tree)
        } else {
            Marks::NONE
        }
    }
}

fn may_have_mark(item_type: KeyType) -> bool {
    matches!(
        item_type,
        KeyType::INODE_ITEM
            | KeyType::XATTR_ITEM
            | KeyType::EXTENT_DATA
            | KeyType::ROOT_ITEM
            | KeyType::EXTENT_ITEM
            | CASELESS_INDEX
            | USAGE_ROOT
            | USAGE_EXTENT
    )
}

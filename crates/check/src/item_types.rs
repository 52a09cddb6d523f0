//! Item types and the trees that may contain them.
//!
//! The kernel looks for an item only in the tree of its type. Elsewhere it is garbage left by a faulty writer.

use std::sync::LazyLock;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::KeyType;

/// A bit mask of tree kinds.
type Kind = u16;

const ROOT: Kind = 1 << 0;
const EXTENT: Kind = 1 << 1;
const CHUNK: Kind = 1 << 2;
const DEV: Kind = 1 << 3;
const FILES: Kind = 1 << 4;
const CSUM: Kind = 1 << 5;
const QUOTA: Kind = 1 << 6;
const UUID: Kind = 1 << 7;
const FREE_SPACE: Kind = 1 << 8;
const BLOCK_GROUP: Kind = 1 << 9;
const LOG: Kind = 1 << 10;
/// A tree without rules here.
const OTHER: Kind = 1 << 11;

/// Types that belong to one or a few kinds of trees. All other types are allowed everywhere.
const HOMES: &[(Kind, &[KeyType])] = &[
    // Version 1 of the free-space cache stores files in the root tree.
    (
        FILES | LOG | ROOT,
        &[
            KeyType::INODE_ITEM,
            KeyType::INODE_REF,
            KeyType::XATTR_ITEM,
            KeyType::DIR_ITEM,
            KeyType::DIR_INDEX,
            KeyType::EXTENT_DATA,
            KeyType::ORPHAN_ITEM,
        ],
    ),
    (
        FILES | LOG,
        &[
            KeyType::INODE_EXTREF,
            KeyType::VERITY_DESC_ITEM,
            KeyType::VERITY_MERKLE_ITEM,
        ],
    ),
    // The header of the inode cache of old kernels, which has its own fault, is in file trees.
    (ROOT | FILES, &[KeyType::UNTYPED]),
    (LOG, &[KeyType::DIR_LOG_ITEM, KeyType::DIR_LOG_INDEX]),
    (CSUM | LOG, &[KeyType::EXTENT_CSUM]),
    (ROOT | LOG, &[KeyType::ROOT_ITEM]),
    (
        ROOT,
        &[
            KeyType::ROOT_REF,
            KeyType::ROOT_BACKREF,
            KeyType::TEMPORARY_ITEM,
        ],
    ),
    (
        EXTENT,
        &[
            KeyType::EXTENT_ITEM,
            KeyType::METADATA_ITEM,
            KeyType::EXTENT_OWNER_REF,
            KeyType::TREE_BLOCK_REF,
            KeyType::EXTENT_DATA_REF,
            KeyType::SHARED_BLOCK_REF,
            KeyType::SHARED_DATA_REF,
        ],
    ),
    (EXTENT | BLOCK_GROUP, &[KeyType::BLOCK_GROUP_ITEM]),
    (
        FREE_SPACE,
        &[
            KeyType::FREE_SPACE_INFO,
            KeyType::FREE_SPACE_EXTENT,
            KeyType::FREE_SPACE_BITMAP,
        ],
    ),
    (
        DEV,
        &[
            KeyType::DEV_EXTENT,
            KeyType::PERSISTENT_ITEM,
            KeyType::DEV_REPLACE,
        ],
    ),
    (CHUNK, &[KeyType::DEV_ITEM, KeyType::CHUNK_ITEM]),
    (
        QUOTA,
        &[
            KeyType::QGROUP_STATUS,
            KeyType::QGROUP_INFO,
            KeyType::QGROUP_LIMIT,
            KeyType::QGROUP_RELATION,
        ],
    ),
    (
        UUID,
        &[KeyType::UUID_KEY_SUBVOL, KeyType::UUID_KEY_RECEIVED_SUBVOL],
    ),
];

/// The kinds of trees that may contain a type, indexed by type; 0 for unknown types.
static ALLOWED: LazyLock<[Kind; 256]> = LazyLock::new(|| {
    let mut allowed = std::array::from_fn(|number| match KeyType(number as u8).name() {
        Some(_) => Kind::MAX,
        None => 0,
    });
    for (kinds, types) in HOMES {
        for item_type in *types {
            allowed[usize::from(item_type.0)] = *kinds | OTHER;
        }
    }
    allowed
});

fn kind_of(tree: RootId) -> Kind {
    match tree {
        RootId::ROOT_TREE => ROOT,
        RootId::EXTENT_TREE => EXTENT,
        RootId::CHUNK_TREE => CHUNK,
        RootId::DEV_TREE => DEV,
        RootId::CSUM_TREE => CSUM,
        RootId::QUOTA_TREE => QUOTA,
        RootId::UUID_TREE => UUID,
        RootId::FREE_SPACE_TREE => FREE_SPACE,
        RootId::BLOCK_GROUP_TREE => BLOCK_GROUP,
        RootId::TREE_LOG => LOG,
        RootId::TREE_RELOC => FILES,
        tree if tree.holds_files() => FILES,
        _ => OTHER,
    }
}

/// The types that one tree may contain.
#[derive(Clone, Copy)]
pub(crate) struct ItemTypes {
    allowed: &'static [Kind; 256],
    kind: Kind,
}

impl ItemTypes {
    pub(crate) fn of(tree: RootId) -> ItemTypes {
        ItemTypes {
            allowed: &ALLOWED,
            kind: kind_of(tree),
        }
    }

    /// Returns whether the tree may contain items of this type.
    pub(crate) fn allow(self, item_type: u8) -> bool {
        self.allowed[usize::from(item_type)] & self.kind != 0
    }

    /// Returns whether any tree may contain items of this type.
    pub(crate) fn is_known(self, item_type: u8) -> bool {
        self.allowed[usize::from(item_type)] != 0
    }
}

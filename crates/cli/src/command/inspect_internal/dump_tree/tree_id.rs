//! Names of trees: a number, or a name in any case, with `-` for `_`. The affixes of the kernel's names
//! (`BTRFS_`, `_TREE`, `_OBJECTID`) are optional.

use std::str::FromStr;

use ubtrfs_format::ids::RootId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeId {
    Tree(RootId),
    /// The log root tree and the log of each subvolume.
    Log,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized tree id: {0}")]
pub(crate) struct UnknownTree(String);

const NAMES: &[(&str, RootId)] = &[
    ("root", RootId::ROOT_TREE),
    ("extent", RootId::EXTENT_TREE),
    ("chunk", RootId::CHUNK_TREE),
    ("dev", RootId::DEV_TREE),
    ("device", RootId::DEV_TREE),
    ("fs", RootId::FS_TREE),
    ("csum", RootId::CSUM_TREE),
    ("checksum", RootId::CSUM_TREE),
    ("quota", RootId::QUOTA_TREE),
    ("uuid", RootId::UUID_TREE),
    ("free_space", RootId::FREE_SPACE_TREE),
    ("block_group", RootId::BLOCK_GROUP_TREE),
    ("raid_stripe", RootId::RAID_STRIPE_TREE),
    ("tree_log", RootId::TREE_LOG),
    ("tree_log_fixup", RootId::TREE_LOG_FIXUP),
    ("tree_reloc", RootId::TREE_RELOC),
    ("data_reloc", RootId::DATA_RELOC_TREE),
];

impl FromStr for TreeId {
    type Err = UnknownTree;

    fn from_str(text: &str) -> Result<TreeId, UnknownTree> {
        if text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(id) = text.parse()
        {
            return Ok(TreeId::Tree(RootId(id)));
        }
        let lower = text.to_ascii_lowercase().replace('-', "_");
        let name = lower.strip_prefix("btrfs_").unwrap_or(&lower);
        let name = name.strip_suffix("_objectid").unwrap_or(name);
        let name = name.strip_suffix("_tree").unwrap_or(name);
        if name == "log" {
            return Ok(TreeId::Log);
        }
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, id)| TreeId::Tree(id))
            .ok_or_else(|| UnknownTree(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_named_in_many_ways() {
        for text in [
            "fs",
            "FS",
            "fs_tree",
            "Fs-Tree",
            "BTRFS_FS_TREE_OBJECTID",
            "5",
        ] {
            assert_eq!(text.parse(), Ok(TreeId::Tree(RootId::FS_TREE)), "{text}");
        }
        assert_eq!("300".parse(), Ok(TreeId::Tree(RootId(300))));
        assert_eq!(
            "free-space".parse(),
            Ok(TreeId::Tree(RootId::FREE_SPACE_TREE))
        );
        assert_eq!("DEVICE".parse(), Ok(TreeId::Tree(RootId::DEV_TREE)));
        assert_eq!("log".parse(), Ok(TreeId::Log));
        assert_eq!("tree-log".parse(), Ok(TreeId::Tree(RootId::TREE_LOG)));
    }

    #[test]
    fn words_that_name_no_tree_are_refused() {
        for text in [
            "", "5x", "-6", "0x5", "fs_", "roottree", "logs", " 5", "BTRFS_5",
        ] {
            assert!(text.parse::<TreeId>().is_err(), "{text}");
        }
    }
}
